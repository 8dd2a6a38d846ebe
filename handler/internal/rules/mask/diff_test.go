package mask_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/mask"
)

func TestDiff(t *testing.T) {
	callOut := func(message string) string { return `{"RawRequest":{"CallOut":"` + inBase64(message) + `"}}` }
	for name, test := range map[string]struct{ before, after, want string }{
		"equal": {nativeSecrets, nativeSecrets, ""},
		"secret": {
			`{"password":"CANARY1","token":"CANARY2"}`, `{"password":"CANARY3","token":"CANARY2"}`,
			`-  "password": "***",` + "\n" + `+  "password": "*** (changed)",` + "\n" + `   "token": "***"`,
		},
		"secret_in_scheme": {
			`{"Authorization":"Basic CANARY"}`, `{"Authorization":"Bearer CANARY"}`, `+  "Authorization": "Bearer ***"`,
		},
		"secret_added":   {`{"a":1}`, `{"a":1,"key":"CANARY"}`, `+  "key": "***"`},
		"secret_removed": {`{"a":1,"key":"CANARY"}`, `{"a":1}`, `-  "key": "***"`},
		"secret_object":  {`{"keys":{"a":1}}`, `{"keys":{"a":2}}`, `+  "keys": "*** (changed)"`},
		"nexus": {
			callOut("GET / HTTP/1.1\r\nHost: old\r\nCookie: CANARY1\r\n\r\n"),
			callOut("GET / HTTP/1.1\r\nHost: new\r\nCookie: CANARY2\r\n\r\n"),
			`-      "Host: old",` + "\n" + `-      "Cookie: ***"` + "\n" + `+      "Host: new",` + "\n" +
				`+      "Cookie: *** (changed)"`,
		},
		"json_in_string": {
			`{"e":"{\"key\":\"1\"}"}`, `{"e":"{\"key\":\"2\"}"}`,
			`+  "e": "{\"key\":\"*** (changed)\"}"`,
		},
		"spacing": {
			`{"a":1}`, `{"a": 1}`,
			"(the differences are not shown without --reveal: they are spacing, or beyond the limit)\n",
		},
		"broken_json": {
			`{"token":"CANARY1",}`, `{"token":"CANARY2",}`,
			"-  \"token\": \"***\"\n-} …\n+  \"token\": \"*** (changed)\"\n+} … (changed)\n",
		},
		"fixed": {`{"token":"CANARY1",`, `{"token":"CANARY1"}`, "   \"token\": \"***\"\n-} …\n+}\n"},
		"rest":  {"a\nCANARY1", "a\nCANARY2", "-a …\n+a … (changed)\n"},
		"binary": {
			"\x00\x01\x02", "\x00\x01\x03",
			"-(not shown without --reveal: binary, 3 bytes)\n" +
				"+(not shown without --reveal: binary, 3 bytes) (changed)\n",
		},
		"broken_body": {
			`{"call":{"body":"{\"a\":\"CANARY1"}}`, `{"call":{"body":"{\"a\":\"CANARY2"}}`,
			`-    "body": "***"` + "\n" + `+    "body": "*** (changed)"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(mask.Diff([]byte(test.before), []byte(test.after), mask.Hidden))
			if !strings.Contains(got, test.want) || (got == "") != (test.want == "") ||
				strings.Contains(got, "CANARY") {
				t.Errorf("difference:\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestDiffRevealed(t *testing.T) {
	got := string(mask.Diff([]byte(`{"key":"1"}`), []byte(`{"key":"2"}`), mask.Revealed))
	want := "--- before\n+++ after\n@@ -1,3 +1,3 @@\n {\n-  \"key\": \"1\"\n+  \"key\": \"2\"\n }\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}
