package mask_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/mask"
)

// FuzzLayout checks that shown content is printable and bounded, and that revealed JSON keeps its meaning.
func FuzzLayout(f *testing.F) {
	for _, seed := range []string{
		"", nativeSecrets, nexusSecrets, `{"a":[1.0,1e400,-0,"\ud83d\ude00\u0000"],` +
			`"a":{}}`, `[[],{},null,true]`, "\xff\xfe{\x00", `{"call":1,"RawRequest":[],"LatestResponse":{}}`,
		`{"call":{"headers":[],"body":{},"bodyBase64":3}}`,
		`{"RawRequest":{"CallOut":"","Context":"AA==","CallBack":"Og=="}}`, `{"name":"key","value":{"key":[1]}}`,
		`{"a":"{\"b\":\"[1,\"}"}`, "\ufeff{}", `"\\`, `{"key":"\`, "<key", "key=", "a://", "https://@?#",
	} {
		f.Add([]byte(seed), []byte(nativeSecrets))
	}
	f.Fuzz(func(t *testing.T, content, other []byte) {
		before := bytes.Clone(content)
		hidden, revealed := mask.ShowContent(content, mask.Hidden), mask.ShowContent(content, mask.Revealed)
		difference := mask.Diff(content, other, mask.Hidden)
		for _, output := range [][]byte{hidden, revealed, difference, mask.Diff(other, content, mask.Revealed)} {
			mustBePrintable(t, string(output))
			if len(output) > 700<<10 || len(output) > 0 && output[len(output)-1] != '\n' {
				t.Errorf("%d bytes of output, from %d", len(output), len(content))
			}
		}
		if !bytes.Equal(before, content) {
			t.Error("the content was changed")
		}
		if (len(difference) == 0) != bytes.Equal(content, other) {
			t.Errorf("difference %q", difference)
		}
		sameMeaning(t, content, revealed)
	})
}

// sameMeaning compares JSON unless it is cut or has members that are decoded.
func sameMeaning(t *testing.T, content, shown []byte) {
	t.Helper()
	var had, has any
	if !decode(content, &had) || strings.Contains(string(shown), "…") {
		return
	}
	if members, ok := had.(map[string]any); ok {
		for name := range members {
			if strings.EqualFold(name, "call") || strings.EqualFold(name, "RawRequest") ||
				strings.EqualFold(name, "LatestResponse") {
				return
			}
		}
	}
	if !decode(shown, &has) || !reflect.DeepEqual(had, has) {
		t.Errorf("%s\nis shown as\n%s", content, shown)
	}
}

func decode(text []byte, into *any) bool {
	if !json.Valid(text) {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into) == nil
}

func ExampleDiff() {
	before := `{"call":{"url":"https://old.example/orders?code=s3cret","headers":{"X-Api-Key":"old"}}}`
	after := `{"call":{"url":"https://new.example/orders?code=s3cret","headers":{"X-Api-Key":"new"}}}`
	fmt.Print(string(mask.Diff([]byte(before), []byte(after), mask.Hidden)))
	// Output:
	// --- before
	// +++ after
	// @@ -1,8 +1,8 @@
	//  {
	//    "call": {
	// -    "url": "https://old.example/orders?code=***",
	// +    "url": "https://new.example/orders?code=***",
	//      "headers": {
	// -      "X-Api-Key": "***"
	// +      "X-Api-Key": "*** (changed)"
	//      }
	//    }
	//  }
}
