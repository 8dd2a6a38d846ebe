package storage_test

import (
	"bytes"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
)

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"550e8400-e29b-41d4-a716-446655440000": true, "550E8400": true, "m": true, strings.Repeat("a", 64): true,
		"": false, "-": false, "--all": false, strings.Repeat("a", 65): false, "a b": false, "a\n": false, "a_b": false,
		"a/b": false, "a?": false, "$(x)": false, "å": false, "..": false, "%61": false,
	} {
		if got := storage.ValidID(id); got != want {
			t.Errorf("%q: %t, want %t", id, got, want)
		}
	}
}

func TestValidName(t *testing.T) {
	tests := map[string]struct {
		name string
		want bool
	}{
		"ours":            {"async-caller", true},
		"priority":        {"async-caller-10", true},
		"digits":          {"123", true},
		"shortest":        {"abc", true},
		"longest":         {strings.Repeat("a", 63), true},
		"empty":           {"", false},
		"too_short":       {"ab", false},
		"too_long":        {strings.Repeat("a", 64), false},
		"upper_case":      {"Async-caller", false},
		"double_dash":     {"async--caller", false},
		"dash_first":      {"-async", false},
		"dash_last":       {"async-", false},
		"underscore":      {"async_caller", false},
		"dot":             {"async.caller", false},
		"slash":           {"async/caller", false},
		"umlaut":          {"äsync", false},
		"newline_at_end":  {"async\n", false},
		"unresolved_name": {"%queue%", false},
	}
	for name, test := range tests {
		if got := storage.ValidName(test.name); got != test.want {
			t.Errorf("%s: ValidName(%q) = %t, want %t", name, test.name, got, test.want)
		}
	}
}

func TestPoisonName(t *testing.T) {
	longest := strings.Repeat("a", 63-len("-poison"))
	tests := map[string]struct {
		name, want string // want is empty where there is none
	}{
		"ours":        {"async-caller", "async-caller-poison"},
		"priority":    {"async-caller-1", "async-caller-1-poison"},
		"longest":     {longest, longest + "-poison"},
		"too_long":    {longest + "a", ""},
		"is_poison":   {"async-caller-poison", ""},
		"poison_only": {"-poison", ""},
		"no_dash":     {"poison", "poison-poison"},
		"in_between":  {"a-poison-b", "a-poison-b-poison"},
		"bad":         {"Async", ""},
		"empty":       {"", ""},
		"dash_last":   {"async-", ""},
	}
	for name, test := range tests {
		got, ok := storage.PoisonName(test.name)
		if ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: PoisonName(%q) = %q, %t; want %q", name, test.name, got, ok, test.want)
		}
		if ok && !storage.ValidName(got) {
			t.Errorf("%s: PoisonName(%q) = %q, which is no valid name", name, test.name, got)
		}
	}
}

func TestEncoding(t *testing.T) {
	tests := map[string]struct {
		encoding      storage.Encoding
		content, text string
	}{
		"base64":         {storage.Base64, "hello", "aGVsbG8="},
		"base64_empty":   {storage.Base64, "", ""},
		"base64_binary":  {storage.Base64, "\x00\xff\xfe", "AP/+"},
		"base64_unicode": {storage.Base64, "🙂", "8J+Zgg=="},
		"none":           {storage.None, "<a>\n</a> 🙂", "<a>\n</a> 🙂"},
		"none_empty":     {storage.None, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.encoding.Encode([]byte(test.content)); got != test.text {
				t.Errorf("Encode(%q) = %q, want %q", test.content, got, test.text)
			}
			got, err := test.encoding.Decode(test.text)
			if err != nil || string(got) != test.content {
				t.Errorf("Decode(%q) = %q, %v; want %q", test.text, got, err, test.content)
			}
		})
	}
}

// The host uses .NET's decoder.
func TestEncodingDecodesLikeTheHost(t *testing.T) {
	for text, want := range map[string]string{
		" aGVs\r\n\tbG8= ": "hello",
		"test":             "\xb5\xeb-", // plain text that happens to be base64
		"\n":               "",
	} {
		if got, err := storage.Base64.Decode(text); err != nil || string(got) != want {
			t.Errorf("Decode(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"aGVsbG8",     // no padding
		"aGVsbG8==",   // too much of it
		"aGVsbG8=x",   // something after it
		"aGVs_G8=",    // the URL alphabet
		"aGVs\u00a08", // white space that the decoder does not ignore
		"{}", "hello, world", "\x00",
	} {
		if got, err := storage.Base64.Decode(text); err == nil {
			t.Errorf("Decode(%q) = %q, want an error", text, got)
		} else if !strings.HasPrefix(err.Error(), "not base64: ") {
			t.Errorf("Decode(%q): error %q does not say what is wrong", text, err)
		}
	}
}

func TestEncodingMaxContentBytes(t *testing.T) {
	for _, encoding := range []storage.Encoding{storage.Base64, storage.None} {
		limit := encoding.MaxContentBytes()
		if got := len(encoding.Encode(make([]byte, limit))); got > storage.MaxTextBytes {
			t.Errorf("%s: the largest content takes %d bytes, more than %d", encoding, got, storage.MaxTextBytes)
		}
		if got := len(encoding.Encode(make([]byte, limit+1))); got <= storage.MaxTextBytes {
			t.Errorf("%s: content of %d bytes still fits", encoding, limit+1)
		}
	}
}

func FuzzEncoding(f *testing.F) {
	for _, seed := range []string{"", "x", "test", "\x00\xff", "<&>\r\n 🙂", strings.Repeat("long ", 100)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, encoding := range []storage.Encoding{storage.Base64, storage.None} {
			text := encoding.Encode(content)
			got, err := encoding.Decode(text)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: Decode(%q) = %q, %v; want %q", encoding, text, got, err, content)
			}
			if fits := len(content) <= encoding.MaxContentBytes(); fits != (len(text) <= storage.MaxTextBytes) {
				t.Errorf("%s: %d bytes of content, %d of text, which MaxContentBytes does not expect",
					encoding, len(content), len(text))
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "aGVsbG8=", " aGVs\nbG8=", "aGVsbG8", "===="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		content, err := storage.Base64.Decode(text)
		if err != nil {
			return
		}
		again, err := storage.Base64.Decode(storage.Base64.Encode(content))
		if err != nil || !bytes.Equal(again, content) {
			t.Errorf("%q holds %q, which decodes to %q, %v", text, content, again, err)
		}
	})
}
