package outbound

import (
	"strings"
	"testing"
)

// TestHeadLines: the lines of heads count, those of bodies do not, however the bytes arrive.
func TestHeadLines(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("X:\r\n", n) }
	const status, end = "HTTP/1.1 200 OK\r\n", "\r\n"
	for name, test := range map[string]struct {
		received string
		refused  bool
	}{
		"few":               {status + lines(10) + end, false},
		"as_many_as_may_be": {status + lines(maxHeaderLines-3) + end, false},
		"too_many":          {status + lines(maxHeaderLines) + end, true},
		"without_end":       {status + lines(maxHeaderLines), true},
		"lines_of_the_body": {status + lines(1) + end + lines(10_000), false},
		"body_with_blanks":  {status + end + strings.Repeat("\r\n", 1000), false},
		"line_feeds_only":   {strings.ReplaceAll(status+lines(maxHeaderLines)+end, "\r", ""), true},
		"short_line_feeds":  {strings.ReplaceAll(status+lines(1)+end+lines(1000), "\r", ""), false},
		"interim": {
			"HTTP/1.1 103 Early Hints\r\n" + lines(5) + end + status + lines(5) + end + lines(1000),
			false,
		},
		"after_interim":     {"HTTP/1.1 103 Early Hints\r\n" + lines(5) + end + status + lines(maxHeaderLines), true},
		"only_interim":      {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxHeaderLines), true},
		"interim_in_spaces": {"HTTP/1.1   103 x\r\n" + end + status + lines(maxHeaderLines), true},
		"no_status_line":    {lines(maxHeaderLines), true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 7, len(test.received)} {
				h := head{left: maxHeaderLines}
				accepted := 0
				for rest := test.received; rest != "" && !h.full; {
					n := min(size, len(rest))
					accepted += h.read([]byte(rest[:n]))
					rest = rest[n:]
				}
				if h.full != test.refused || !h.full && accepted != len(test.received) {
					t.Errorf("%d bytes at a time: full %v, %d of %d bytes accepted", size, h.full, accepted,
						len(test.received))
				}
			}
		})
	}
}
