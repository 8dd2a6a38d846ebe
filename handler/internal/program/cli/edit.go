package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/program/terminal"
)

// editFlags are the names of the flags that addEdits declares.
func editFlags() []string {
	return []string{"set", "set-header", "delete-header", "replace-host", "jq", "edit"}
}

// addEdits declares the flags that edit messages. The flag --edit sets inEditor.
func addEdits(flags *flagSet, to *edit.Edits, inEditor *bool) {
	edits := (*[]edit.Edit)(to)
	parsedList(flags, edits, "set",
		"set a member, as `PATH=VALUE`: call.url, call.json, deadline …; may be repeated", parseSet)
	parsedHeaders(flags, "set-header", "set a `header` of the call, "+headerUsage, func(text string) error {
		header, err := edit.ParseHeader(text)
		*edits = append(*edits, header)
		return err
	})
	parsedList(flags, edits, "delete-header",
		"remove a header of the call, by `name`; may be repeated", edit.ParseDeleteHeader)
	parsedList(flags, edits, "replace-host",
		"replace the host of call and callback, as `OLD=NEW`; may be repeated", edit.ParseReplaceHost)
	parsedList(flags, edits, "jq",
		"edit a native envelope with a jq `expression`; may be repeated", edit.ParseJQ)
	flags.BoolVar(inEditor, "edit", false, "edit one message in an editor")
}

// parseSet reads the argument of --set. Any text can be a value, but for a member that is usually JSON, a broken object
// or array is none.
func parseSet(argument string) (edit.Edit, error) {
	path, value, _ := strings.Cut(argument, "=")
	isOfJSON := slices.Contains([]string{"call.json", "context", "retry"}, path)
	isBracketed := strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[")
	if isOfJSON && isBracketed {
		if _, err := parseJSON(value); err != nil {
			return edit.Edit{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return edit.ParseSet(argument)
}

// edit lets a person edit a content until accept returns no error. It returns nil if nothing was changed.
func (s *session) edit(ctx context.Context, content []byte, accept func(edited []byte) error) ([]byte, error) {
	folder, err := os.MkdirTemp("", "async-caller-") // of its own, because an editor leaves copies beside the file
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "message.json")
	if err := os.WriteFile(path, edit.Editable(content), 0o600); err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	for {
		if err := s.runEditor(ctx, path); err != nil {
			return nil, err
		}
		edited, err := s.readEdited(path, content)
		if err == nil && edited == nil {
			s.progress.printf("no changes: nothing was done")
			return nil, nil
		}
		if err == nil {
			err = accept(edited)
		}
		if err == nil {
			return edited, nil
		}
		err = fmt.Errorf("the edited message cannot be sent: %w", err)
		if !s.env.canAsk() {
			return nil, fmt.Errorf("%w; nothing was changed", err)
		}
		s.progress.printf("%v", err)
		answer, err := terminal.Ask(ctx, s.env.Stdin, s.env.Stderr, "edit it again? [Y/n]")
		confirmed := answer == "" || terminal.IsYes(answer)
		if err != nil || !confirmed {
			return nil, errors.New("not confirmed: nothing was changed")
		}
	}
}

// checkEffect returns an error that names edits without effect.
func checkEffect(idle []string) error {
	if len(idle) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", operation.ErrNoEffect, strings.Join(idle, "; "))
}

// readEdited returns the edited content, or nil if it is the original.
func (s *session) readEdited(path string, original []byte) ([]byte, error) {
	edited, err := readText(s.env, path)
	if err != nil {
		return nil, err
	}
	restored, err := edit.Restore(original, edited)
	if err != nil || bytes.Equal(restored, original) {
		return nil, err
	}
	return restored, nil
}

// runEditor runs the editor. As for git, VISUAL and EDITOR are commands for the shell. Where there is none, as on
// Windows, they are a program, perhaps in double quotes, and arguments. Ctrl-C reaches the editor only.
func (s *session) runEditor(ctx context.Context, path string) error {
	s.progress.clear()
	visual, editor := strings.TrimSpace(s.env.getenv("VISUAL")), strings.TrimSpace(s.env.getenv("EDITOR"))
	editor = cmp.Or(visual, editor, "vi")
	words := []string{"sh", "-c", editor + ` "$@"`, editor, path}
	if _, err := exec.LookPath("sh"); err != nil {
		words = append(splitQuoted(editor), path)
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), words[0], words[1:]...) //nolint:gosec // the operator's
	command.Stdin = s.env.Stdin
	command.Stdout = s.env.Stdout
	command.Stderr = s.env.Stderr
	command.Env = s.env.Environ
	if err := command.Run(); err != nil {
		return fmt.Errorf("editor %s: %w; nothing was changed", editor, err)
	}
	return nil
}

// splitQuoted returns the words of a command whose program may be in double quotes.
func splitQuoted(command string) []string {
	program, arguments, isQuoted := strings.Cut(strings.TrimPrefix(command, `"`), `"`)
	if !isQuoted {
		program, arguments, _ = strings.Cut(command, " ")
	}
	return append([]string{program}, strings.Fields(arguments)...)
}
