package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/plain/variable"
	"asynccaller/handler/internal/storage"
)

// Variable is an environment variable that the optional files refer to by ${NAME}. Its value is no secret, bounded and
// printable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Source is where the value comes from: local.settings.json, or the environment, which has the app settings.
	Source string `json:"source"`
	// Files are the files with the variable.
	Files []string `json:"files"`
}

// String describes the variable for a person.
func (v Variable) String() string {
	return fmt.Sprintf("%s is %q, from %s, in %s", v.Name, v.Value, v.Source, strings.Join(v.Files, ", "))
}

// variables expands the variables of an app's files, and collects those that were used.
type variables struct {
	variable.Environment
	found map[string]Variable
}

// newVariables returns the variables of an environment. What targets.json refers to by a whole "$NAME" is a secret.
func newVariables(dir string, environ []string) *variables {
	content, _ := os.ReadFile(filepath.Join(dir, TargetsFile)) //nolint:gosec // readFile reports the error
	getenv := Getenv(environ)
	return &variables{
		Environment: variable.Environment{
			Getenv:  func(name string) string { return cleaned(getenv(name)) },
			Secrets: append(variable.Whole(content), storage.ConnectionName, proxySetting),
		},
		found: map[string]Variable{},
	}
}

// expanding returns a function that expands the variables of a file, and then parses it. Its error joins the problems
// of both. The functions of routes are in the app folder, so their queues are the same in all environments.
func expanding[T any](vars *variables, file string, parse func([]byte) (T, error)) func([]byte) (T, error) {
	return func(content []byte) (T, error) {
		entries := variable.Expanded
		if file == RoutesFile {
			entries = variable.Literal
		}
		expanded, used, err := vars.Expand(content, entries)
		for name, value := range used {
			files := append(vars.found[name].Files, file)
			vars.found[name] = Variable{Name: name, Value: value, Source: "the environment", Files: files}
		}
		parsed, parseErr := parse(expanded)
		return parsed, errors.Join(err, parseErr)
	}
}

func (v *variables) used() []Variable {
	byName := func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) }
	return slices.SortedFunc(maps.Values(v.found), byName)
}

// setSources finds the variables that are not in an environment, and thus come from local.settings.json.
func (s *Settings) setSources(environ []string) {
	getenv := Getenv(environ)
	for i, v := range s.Variables {
		if getenv(v.Name) == "" {
			s.Variables[i].Source = functionapp.LocalSettings
		}
	}
}
