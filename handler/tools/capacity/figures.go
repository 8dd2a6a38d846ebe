package capacity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// number writes a number for people: three digits that count, all digits of what is larger.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.001:
		return "< 0.001"
	case x >= 99.95:
		return grouped(strconv.FormatFloat(math.Round(x), 'f', 0, 64))
	}
	digits := 3
	for _, limit := range []float64{0.9995, 9.995} {
		if x >= limit {
			digits--
		}
	}
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(x, 'f', digits, 64), "0"), ".")
}

// grouped puts commas between thousands.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func (f Figure) String() string { return number(float64(f)) }

func percent(share Figure) string { return number(float64(share)*100) + "%" }

// String writes the two largest units, such as 1h5m.
func (s Span) String() string {
	d := time.Duration(s)
	switch {
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		d = d.Round(time.Second)
	case d < 24*time.Hour:
		d = d.Round(time.Minute)
	default:
		hours := int64(d.Round(time.Hour) / time.Hour)
		return trimZero(fmt.Sprintf("%dd%dh", hours/24, hours%24), "0h")
	}
	text := trimZero(d.String(), "0s")
	return trimZero(text, "0m")
}

// trimZero cuts a unit of which there is none.
func trimZero(text, zero string) string {
	if cut, found := strings.CutSuffix(text, zero); found && cut[len(cut)-1] > '9' { // not the end of 10s
		return cut
	}
	return text
}

func bytesText(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	x, unit := float64(n), 0
	for x >= 1024 && unit < len(units)-1 {
		x /= 1024
		unit++
	}
	return number(x) + " " + units[unit]
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(float64(n)) + " " + many
}
