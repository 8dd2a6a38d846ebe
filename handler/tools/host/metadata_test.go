package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetadata_forge(t *testing.T) {
	const untouched = `Id="\"1\"";sys={}`
	for name, test := range map[string]struct{ content, want string }{
		"plain_text":          {`hello`, untouched},
		"empty":               {``, untouched},
		"array":               {`[{"Id":2}]`, untouched},
		"quoted_object":       {`"{}"`, untouched},
		"malformed":           {`{"Id":2`, untouched},
		"trailing":            {`{"Id":2} x`, untouched},
		"white_space":         {" \r\n{\"Id\":\"2\"}\t", `Id="\"2\"";sys={}`},
		"other_case":          {`{"iD":"2"}`, `Id="\"2\"";sys={}`},
		"new_name":            {`{"Url":"u"}`, untouched + `;Url="\"u\""`},
		"object":              {`{"SYS": {"a" : [1, null]} }`, `Id="\"1\"";sys={"a":[1,null]}`},
		"object_over_string":  {`{"id":{"b":2}}`, `Id={"b":2};sys={}`},
		"string_over_object":  {`{"sys":"s"}`, `Id="\"1\"";sys="\"s\""`},
		"null_and_array":      {`{"id":null,"sys":[1],"x":null}`, untouched},
		"bools":               {`{"a":true,"b":false}`, untouched + `;a="\"True\"";b="\"False\""`},
		"trigger":             {`{"queueTrigger":"x","MYTRIGGER":"y","triggers":"z"}`, untouched + `;triggers="\"z\""`},
		"escaped":             {`{"a":"\"\\\n"}`, untouched + `;a="\"\\\"\\\\\\n\""`},
		"twice":               {`{"id":"2","id":"3"}`, `Id="\"3\"";sys={}`},
		"twice_in_other_case": {`{"id":"2","ID":"3"}`, `Id="\"3\"";sys={}`},
		"twice_ends_in_null":  {`{"id":"2","id":null}`, untouched},
		"as_deep_as_it_goes":  {nested(maxParseDepth), `Id="\"1\"";sys={};a=` + strings.TrimSuffix(strings.TrimPrefix(nested(maxParseDepth), `{"a":`), "}")},
		"too_deep":            {nested(maxParseDepth + 1), untouched},
		"brackets_in_string":  {`{"a":"[{\"[{"}`, untouched + `;a="\"[{\\\"[{\""`},
	} {
		t.Run(name, func(t *testing.T) {
			m := metadata{{"Id", []byte(`"\"1\""`)}, {"sys", []byte(`{}`)}}
			m.forge([]byte(test.content))
			var got []string
			for _, member := range m {
				got = append(got, member.name+"="+string(member.value))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ";")); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}

func TestDotNetString(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"hello":                        "hello",
		"2026-01-02T03:04:05Z":         "01/02/2026 03:04:05",
		"2026-01-02T03:04:05":          "01/02/2026 03:04:05",
		"2026-01-02T03:04:05.9876543Z": "01/02/2026 03:04:05",
		"2026-01-02T03:04:05+02:00":    "01/02/2026 01:04:05",
		"2026-01-02":                   "2026-01-02",
		"2026-01-02 03:04:05Z":         "2026-01-02 03:04:05Z",
		"2026-13-02T03:04:05Z":         "2026-13-02T03:04:05Z",
		"at 2026-01-02T03:04:05Z":      "at 2026-01-02T03:04:05Z",
	} {
		if got := dotNetString(in); got != want {
			t.Errorf("dotNetString(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDotNetNumber(t *testing.T) {
	for in, want := range map[string]string{
		"0":                              "0",
		"-0":                             "0",
		"5":                              "5",
		"9223372036854775808":            "9223372036854775808",
		"123456789012345678901234567890": "123456789012345678901234567890",
		"5.0":                            "5",
		"-2.50":                          "-2.5",
		"-0.0":                           "-0",
		"1e3":                            "1000",
		"1E14":                           "100000000000000",
		"1e15":                           "1E+15",
		"123456789012345678.0":           "1.2345678901234568E+17",
		"0.0001":                         "0.0001",
		"0.00001":                        "1E-05",
		"1.5e-300":                       "1.5E-300",
		"1e400":                          "Infinity",
		"-1e400":                         "-Infinity",
		"1e-400":                         "0",
	} {
		if got := dotNetNumber(in); got != want {
			t.Errorf("dotNetNumber(%q) = %q, want %q", in, got, want)
		}
	}
}
