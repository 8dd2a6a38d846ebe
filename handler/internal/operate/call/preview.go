package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/explain"
)

// Preview describes how a retry would process a message.
type Preview struct {
	To string `json:"to,omitempty"`
	// Refused is the reason why a retry would refuse the message.
	Refused string `json:"refused,omitempty"`
	// Flags are what a retry needs so that it does not refuse the message.
	Flags       []string             `json:"flags,omitempty"`
	Explanation *explain.Explanation `json:"explanation,omitempty"`
}

// previewRetry prepares a message as a retry does and explains the result. The error is why the settings in force are
// not known, on which the explanation then does not depend.
func previewRetry(ctx context.Context, a *account.Account, f account.Found) (preview Preview, unknown error) {
	now := time.Now()
	preview, text := prepareRetry(ctx, a.Rules, f, now)
	if preview.Refused != "" || f.Raw { // explain FILE describes the call of the route
		return preview, nil
	}
	explanation, unknown := explainMessage(ctx, a, preview.To, f.ID, a.Rules.Content(text), now)
	preview.Explanation = &explanation
	return preview, unknown
}

// prepareRetry prepares a message as a retry does, and returns the text that it would write.
func prepareRetry(
	ctx context.Context, rules message.Rules, f account.Found, now time.Time,
) (preview Preview, text string) {
	to, noTarget := operation.RetryTo(f.Queue, "")
	text, invalid := edit.Prepare(ctx, rules, f.Text, f.ID, edit.Options{Raw: f.Raw}, now)
	preview = Preview{To: to}
	if noTarget != nil {
		preview.Flags = append(preview.Flags, "--to QUEUE")
	}
	if invalid != nil {
		_, err := edit.Prepare(ctx, rules, f.Text, f.ID, edit.Options{Raw: f.Raw, FixEncoding: true}, now)
		switch {
		case err == nil:
			preview.Flags = append(preview.Flags, "--fix-encoding")
		case !f.Raw:
			preview.Flags = append(preview.Flags, "--edit")
		}
	}
	if err := cmp.Or(noTarget, invalid); err != nil {
		preview.Refused = err.Error()
	}
	return preview, text
}

// explainMessage returns what the handler does with a message of a queue at a time. The error is that of
// [previewRetry].
func explainMessage(
	ctx context.Context, a *account.Account, queueName, id string, content []byte, at time.Time,
) (explanation explain.Explanation, unknown error) {
	rules := a.Rules
	settings, err := a.Settings(ctx)
	if err != nil && !errors.Is(err, account.ErrNoSettings) {
		unknown = err
	}
	return explain.About(rules.Decision, explain.Question{
		Queue:           queueName,
		MessageID:       id,
		Content:         content,
		Now:             at,
		MaxContentBytes: rules.Encoding.MaxContentBytes(),
		Guard:           rules.Guard,
		Live:            liveSettings(a, settings, at),
	}), unknown
}

// liveSettings returns what an explanation needs to know about the settings of an account.
func liveSettings(a *account.Account, settings []setting.Setting, now time.Time) func(*url.URL) explain.Live {
	inForce := setting.Select(settings, now)
	return func(target *url.URL) explain.Live {
		of := inForce.Of(target, now)
		if len(of) == 0 {
			return explain.Live{}
		}
		live := explain.Live{Profile: of.Profile}
		for _, member := range slices.Sorted(maps.Keys(of)) {
			s := of[member]
			if member == setting.Pause {
				live.Paused, live.Until = s.Text(), s.Until
				continue
			}
			file := cmp.Or(setting.ValueOf(a.Rules.Decision.Profiles.For(target), member), "none")
			live.Set = append(live.Set, fmt.Sprintf("%s (targets.json: %s) %s", s, file, s.Text()))
		}
		return live
	}
}

// nextForPoison suggests commands for a poison message.
func nextForPoison(id, queueName string, retry Preview) []string {
	target := commandTarget(id, queueName)
	words := append([]string{"calls retry", target}, retry.Flags...)
	return []string{strings.Join(words, " "), "calls delete " + target}
}

// commandTarget names a message in a command. The queue saves reading the others.
func commandTarget(id, queueName string) string {
	return format.ShellWord(id) + " --queue " + format.ShellWord(queueName)
}
