package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/queue"
)

// edit lets a person change a message in an editor until requeueing would accept it, and notes the edited
// content in the options. It reports whether anything was changed.
func (d *desk) edit(ctx context.Context, f poison.Found, options *edit.Options) (changed bool, err error) {
	if _, err := d.account.Rules.Encoding.Decode(f.Text); err != nil {
		options.FixEncoding = true // what a person sees and saves is the text itself
	}
	path, err := tempFile(edit.Editable(f.Content))
	if err != nil {
		return false, fmt.Errorf("edit: %w", err)
	}
	defer func() { _ = os.Remove(path) }()
	for {
		if err := d.runEditor(ctx, path); err != nil {
			return false, err
		}
		changed, err := d.take(ctx, path, f, options)
		if err == nil {
			return changed, nil
		}
		if !d.s.canAsk() {
			return false, fmt.Errorf("the edited message cannot be sent: %w; nothing was changed", err)
		}
		d.tell.say("the edited message cannot be sent: %v", err)
		answer, asked := ask(ctx, d.s.Stdin, d.s.Stderr, "edit it again? [Y/n]")
		if asked != nil || answer != "" && !agreed(answer) {
			return false, errors.New("not agreed to: nothing was changed")
		}
	}
}

// take reads what the editor left, and tries whether it would be sent.
func (d *desk) take(ctx context.Context, path string, f poison.Found, options *edit.Options) (changed bool, err error) {
	edited, err := readEdited(path)
	if err != nil {
		return false, err
	}
	restored, err := edit.Restore(f.Content, edited)
	if err != nil || bytes.Equal(restored, f.Content) {
		return false, err
	}
	options.Edited = restored
	_, err = d.account.Rules.Prepare(ctx, f.Text, f.ID, *options, d.now())
	return true, err
}

func readEdited(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // our own file
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// Editors leave white space and line ends, and indentation; nothing larger fits on a queue.
	const most = 16 * queue.MaxTextBytes
	edited, err := io.ReadAll(io.LimitReader(file, most+1))
	if len(edited) > most {
		return nil, errors.New("it is larger than any message")
	}
	return edited, err
}

// tempFile writes a file that nobody else can read: it holds a whole message.
func tempFile(content []byte) (path string, err error) {
	file, err := os.CreateTemp("", "async-caller-*.json") // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// runEditor waits for the editor. The variables may have arguments, as for git. Ctrl-C is the editor's
// while it runs.
func (d *desk) runEditor(ctx context.Context, path string) error {
	words := strings.Fields(cmp.Or(d.s.getenv("VISUAL"), d.s.getenv("EDITOR"), "vi"))
	if len(words) == 0 {
		return wrongUsage(errors.New("VISUAL and EDITOR name no editor"))
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), words[0], append(words[1:], path)...) //nolint:gosec // the operator's own
	command.Stdin, command.Stdout, command.Stderr = d.s.Stdin, d.s.Stdout, d.s.Stderr
	command.Env = d.environ
	if err := command.Run(); err != nil {
		return fmt.Errorf("editor %s: %w; nothing was changed", words[0], err)
	}
	return nil
}
