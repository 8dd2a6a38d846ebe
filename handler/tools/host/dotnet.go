package host

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

const (
	// isoMin and isoMax bound the length of a string that Newtonsoft.Json takes for a date.
	isoMin, isoMax = len("2006-01-02T15:04:05"), 40
	// invariantTime is .NET's DateTime.ToString in the invariant culture.
	invariantTime = "01/02/2006 15:04:05"
	// dotNetDigits is the number of digits before the point beyond which .NET writes an exponent.
	dotNetDigits = 15
	// dotNetZeros is the same on the small side: 0.0001 but 1E-05.
	dotNetZeros = 5
)

// dotNetString is what becomes of a JSON string in Newtonsoft.Json: one that looks like an ISO date is
// parsed and printed as .NET prints dates. The offset becomes local time, which is UTC in Azure.
func dotNetString(s string) string {
	if len(s) < isoMin || len(s) > isoMax || s[10] != 'T' {
		return s
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC().Format(invariantTime)
		}
	}
	return s
}

// dotNetNumber prints a JSON number as .NET prints the number that Newtonsoft.Json reads: an integer of
// any size, or a double in its shortest form.
func dotNetNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		if n, ok := new(big.Int).SetString(s, 10); ok {
			return n.String()
		}
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return s
	}
	return dotNetDouble(f)
}

func dotNetDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	mantissa, exponentText, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
	exponent, err := strconv.Atoi(exponentText)
	if err != nil || exponent > -dotNetZeros && exponent < dotNetDigits {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	sign := "+"
	if exponent < 0 {
		sign, exponent = "-", -exponent
	}
	digits := strconv.Itoa(exponent)
	if len(digits) < 2 {
		digits = "0" + digits
	}
	return mantissa + "E" + sign + digits
}
