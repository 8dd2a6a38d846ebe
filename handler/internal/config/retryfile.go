package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"asynccaller/handler/internal/retry"
)

// RetryFile is the name of the file in the app folder with the operator's own retry policies.
const RetryFile = "retry.json"

// LoadPolicies reads the operator's own retry policies from the app folder. The file is optional. The error has one
// line per problem; each names the file, the policy and the parameter.
func LoadPolicies(dir string) (retry.Policies, error) {
	content, err := os.ReadFile(filepath.Join(dir, RetryFile)) //nolint:gosec // the app folder is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	policies, err := retry.ParsePolicies(content)
	if err != nil {
		const file = RetryFile + ": "
		return nil, errors.New(file + strings.ReplaceAll(err.Error(), "\n", "\n"+file))
	}
	return policies, nil
}
