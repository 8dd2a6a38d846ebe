package cli

import (
	"bytes"
	"strings"
	"testing"
)

// screen is a terminal of a width.
type screen struct {
	bytes.Buffer
	width int
}

func (s *screen) columns() int { return s.width }

// TestTable checks that rows fit the terminal, that only flexible columns lose text, and that they lose its middle.
func TestTable(t *testing.T) {
	const (
		target  = "GET https://crm.example.com/api/v2/organizations/contoso/orders/4711"
		request = "order-2026-10-14-000000000000000000000000-4711"
	)
	for name, test := range map[string]struct {
		width int
		cells []string
		want  string
	}{
		"wide": {
			200, []string{"0a1b2c3d", request, "3", target},
			"0a1b2c3d  " + request + "     3  " + target,
		},
		"piped": {
			textColumns, []string{"0a1b2c3d", request, "3", target},
			"0a1b2c3d  order-2026-10-14-000000000000000000000000-4711     3  GET https://crm.example…/orders/4711",
		},
		"standard": {
			80, []string{"0a1b2c3d", request, "3", target},
			"0a1b2c3d  order-2026-10-14-0000000…0000000-4711     3  GET https://crm.…ers/4711",
		},
		"narrow": {
			60, []string{"0a1b2c3d", request, "3", target},
			"0a1b2c3d  order-2026-10…00-4711     3  GET https://c…rs/4711",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := &screen{width: test.width}
			table := newTable(out, leftColumn("ID", 8), flexColumn("REQUEST", 46), rightColumn("ATT", 4),
				flexColumn("TARGET", 0))
			out.Reset()
			table.row(test.cells...)
			got := strings.TrimSuffix(out.String(), "\n")
			if got != test.want {
				t.Errorf("\n%s\nwant\n%s", got, test.want)
			}
			if displayWidth(got) > test.width {
				t.Errorf("%d columns: %s", displayWidth(got), got)
			}
		})
	}
}
