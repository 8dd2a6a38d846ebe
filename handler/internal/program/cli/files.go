package cli

import (
	"errors"
	"fmt"
	"io"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/rules/envelope"
)

// maxFileBytes limits a file with one envelope or body: more than either has, with room for indentation.
const maxFileBytes = 4 * envelope.MaxBody

// readText reads a file as readFile does, without a byte order mark. It refuses UTF-16.
func readText(env Env, path string) ([]byte, error) {
	content, err := readFile(env, path)
	if err != nil {
		return nil, err
	}
	text, err := bom.Text(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// readFile reads a file of at most maxFileBytes, or standard input for "-".
func readFile(env Env, path string) ([]byte, error) {
	file, err := env.open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if len(content) > maxFileBytes {
		return nil, errors.New("larger than any message")
	}
	return content, err
}
