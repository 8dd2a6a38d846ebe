package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"asynccaller/handler/internal/retry"
)

// RetryFile is the name of the file in the app folder that holds the operator's own retry policies.
const RetryFile = "retry.json"

// LoadPolicies reads the operator's own retry policies from the app folder; without the file there are
// none. The error joins every problem, each naming the policy and the parameter.
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
		return nil, inFile(err)
	}
	return policies, nil
}

// inFile names the file before each of the joined problems.
func inFile(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", RetryFile, err)
	}
	var problems []error
	for _, problem := range joined.Unwrap() {
		problems = append(problems, fmt.Errorf("%s: %w", RetryFile, problem))
	}
	return errors.Join(problems...)
}
