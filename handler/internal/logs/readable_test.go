package logs_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/logs"
)

func TestReadable(t *testing.T) {
	var out bytes.Buffer
	w := logs.Readable(&out)
	for _, piece := range []string{"plain\n{\"level\":\"info\",\"mess", "age\":\"settled\",\"action\":\"finish\"}\n{not json\n", "rest\n"} {
		if _, err := io.WriteString(w, piece); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || lines[0] != "plain" || lines[2] != "{not json" || lines[3] != "rest" {
		t.Fatalf("got %q", lines)
	}
	if !strings.Contains(lines[1], "settled") || strings.Contains(lines[1], `"action"`) {
		t.Errorf("the log line is still JSON: %q", lines[1])
	}
}

func TestReadableLimitsPendingLine(t *testing.T) {
	var out bytes.Buffer
	if _, err := io.WriteString(logs.Readable(&out), strings.Repeat("x", 1<<20)); err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		t.Error("an unfinished line of 1 MiB is held back")
	}
}

func TestNew(t *testing.T) {
	var json, text bytes.Buffer
	log := logs.New(&json, zerolog.InfoLevel)
	log.Info().Str(logs.Action, "finish").Msg("settled")
	log.Debug().Msg("not wanted")
	log = logs.New(logs.Readable(&text), zerolog.InfoLevel)
	log.Info().Msg("settled")
	if !strings.HasPrefix(json.String(), "{") || strings.Count(json.String(), "\n") != 1 || !strings.Contains(json.String(), `"action":"finish"`) {
		t.Errorf("JSON: %s", json.String())
	}
	if strings.HasPrefix(text.String(), "{") {
		t.Errorf("text: %s", text.String())
	}
}

// TestNewIsSafeForConcurrentUse: lines of several goroutines do not mix, whatever the writer.
func TestNewIsSafeForConcurrentUse(t *testing.T) {
	const writers, lines = 4, 200
	var out bytes.Buffer
	log := logs.New(logs.Readable(&out), zerolog.InfoLevel)
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
		if count++; strings.Count(line, "settled") != 1 {
			t.Fatalf("line %q", line)
		}
	}
	if count != writers*lines {
		t.Errorf("%d lines, want %d", count, writers*lines)
	}
}
