package tail_test

import (
	"strings"
	"testing"

	"asynccaller/handler/tools/tail"
)

func TestWriter(t *testing.T) {
	var out tail.Writer
	for range 3 {
		if n, err := out.Write([]byte(strings.Repeat("x", tail.Max-1))); n != tail.Max-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = out.Write([]byte("the end"))
	if got := out.String(); len(got) != tail.Max || !strings.HasSuffix(got, "xthe end") {
		t.Errorf("kept %d bytes that end in %q, want the last %d", len(got), got[len(got)-10:], tail.Max)
	}
}
