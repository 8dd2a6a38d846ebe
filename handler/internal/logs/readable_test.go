package logs_test

import (
	"bytes"
	"io"
	"strings"
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
		t.Errorf("the log line is not text: %q", lines[1])
	}
}

func TestReadableBoundsALine(t *testing.T) {
	var out bytes.Buffer
	if _, err := io.WriteString(logs.Readable(&out), strings.Repeat("x", 1<<20)); err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		t.Error("a line without an end is held back whole")
	}
}

func TestNew(t *testing.T) {
	var machine, person bytes.Buffer
	log := logs.New(&machine, zerolog.InfoLevel, false)
	log.Info().Str(logs.Action, "finish").Msg("settled")
	log.Debug().Msg("not wanted")
	log = logs.New(&person, zerolog.InfoLevel, true)
	log.Info().Msg("settled")
	if !strings.HasPrefix(machine.String(), "{") || strings.Count(machine.String(), "\n") != 1 || !strings.Contains(machine.String(), `"action":"finish"`) {
		t.Errorf("for a machine: %s", machine.String())
	}
	if strings.HasPrefix(person.String(), "{") {
		t.Errorf("for a person: %s", person.String())
	}
}
