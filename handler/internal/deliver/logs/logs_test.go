package logs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
)

// TestNewIsPrintable checks that no text controls the terminal of a person who reads the log, or changes the order of
// what he sees. The JSON keeps the text.
func TestNewIsPrintable(t *testing.T) {
	const sent = "a\u0085\u009b31m\u061c\u200e\u202eb\u2066\u2028\u00a0\U000e0041\x7f\x1b[2J\xff ä漢"
	bad := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	var lines bytes.Buffer
	log := logs.New(&lines, zerolog.InfoLevel)
	log.Info().Str(logs.Organization, sent).Strs(logs.Ignored, []string{sent}).Err(errors.New(sent)).Msg(sent)
	log.Debug().Msg("not wanted")
	if strings.ContainsFunc(lines.String(), bad) || strings.Count(lines.String(), "\n") != 1 {
		t.Errorf("JSON: %q", lines.String())
	}
	var fields map[string]any
	if err := json.Unmarshal(lines.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	if want := strings.ToValidUTF8(sent, "\ufffd"); fields["message"] != want || fields["error"] != want ||
		fields[logs.Organization] != want {
		t.Errorf("fields %q, want each %q", fields, want)
	}
}

// TestNewIsSafeForConcurrentUse: lines of several goroutines do not mix, whatever the writer.
func TestNewIsSafeForConcurrentUse(t *testing.T) {
	const writers, lines = 4, 200
	var out bytes.Buffer
	log := logs.New(&out, zerolog.InfoLevel)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range lines {
				log.Info().Msg("settled")
			}
		})
	}
	group.Wait()
	count := 0
	for line := range strings.Lines(out.String()) {
		count++
		if strings.Count(line, "settled") != 1 {
			t.Fatalf("line %q", line)
		}
	}
	if count != writers*lines {
		t.Errorf("%d lines, want %d", count, writers*lines)
	}
}
