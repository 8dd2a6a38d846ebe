package text_test

import (
	"testing"

	"asynccaller/handler/internal/plain/text"
)

func TestPrintable(t *testing.T) {
	if got := text.Printable("a\u009b\n\xffä"); got != "a\ufffd\ufffd\ufffdä" {
		t.Errorf("got %q", got)
	}
	if got := text.Lines("a\r\nb\tc\rd"); got != "a\nb\tc\ufffdd" {
		t.Errorf("lines: got %q", got)
	}
}

func TestLine(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "12345678": "12345678", "123456789": "12345…", "a\nb": "a\ufffdb", "\x00\x00\x00": "\ufffd…",
		"12éé567": "12é…",
	} {
		if got := text.Line(s, 8); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "abc": "abc", "abcd": "abc", "abéd": "ab", "😀": "", "\x80\x80\x80\x80": "",
	} {
		if got := text.Clip(s, 3); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestLimitMarks(t *testing.T) {
	for marked, want := range map[string]string{
		"": "", "abc": "abc", "a\u0301\u0301b\u0301": "a\u0301\u0301b\u0301",
		"a\u0301\u0301\u0301\u0301b": "a\u0301\u0301\ufffd\ufffdb",
	} {
		if got := text.LimitMarks(marked); got != want {
			t.Errorf("%+q: %+q, want %+q", marked, got, want)
		}
	}
}
