package nearest_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/plain/nearest"
)

func TestName(t *testing.T) {
	names := []string{"url", "call", "callback", "deadline", "headers", "requestId", "async-caller", "async-caller-10"}
	tests := map[string]struct {
		text, want string
		likely     bool
	}{
		"missing_character":     {"deadlin", "deadline", true},
		"added_character":       {"headerss", "headers", true},
		"replaced_character":    {"uri", "url", true},
		"swapped_characters":    {"ulr", "url", true},
		"two_mistakes":          {"haeder", "headers", true},
		"letter_case":           {"REQUESTID", "requestId", true},
		"other_separator":       {"request_id", "requestId", true},
		"same":                  {"call", "call", true},
		"longer_beginning":      {"async-caller1", "async-caller", true},
		"another_word":          {"owner", "url", false},
		"too_many_mistakes":     {"deathlength", "deadline", false},
		"short_word":            {"u", "url", false},
		"empty":                 {"", "url", false},
		"long_text":             {strings.Repeat("x", 64<<10), "url", false},
		"not_utf8":              {"\xff\xfe", "url", false},
		"name_inside_long_text": {"callback-of-mine", "callback", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, likely := nearest.Name(test.text, names); got != test.want || likely != test.likely {
				t.Errorf("nearest to %.20q: %q, likely %v; want %q, %v", test.text, got, likely, test.want, test.likely)
			}
		})
	}
	if got := nearest.Hint("deadlin", names) + nearest.Hint("owner", names); got != "; did you mean deadline?" {
		t.Errorf("hints: %q", got)
	}
	if got, likely := nearest.Name("call", nil); got != "" || likely {
		t.Errorf("nearest of no names: %q, likely %v", got, likely)
	}
}
