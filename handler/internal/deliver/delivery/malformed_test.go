package delivery_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/rules/decision"
)

// TestMalformedRequestID: the line about a malformed message has the request id, if that can be read, and else nothing
// of the message but its tenant.
func TestMalformedRequestID(t *testing.T) {
	const secret = "C4nary"
	native := func(id string) string {
		return `{"asyncCaller":1,"requestId":` + id + `,"x":"` + secret +
			`","call":{"url":"https://t.example/` + secret +
			`","headers":{"X-Num":5,"X-Correlation-ID":"` + secret + `"}}}`
	}
	nexus := func(original, id string) string {
		return `{"Organization":"acme","Environment":"prd","OriginalRequestId":` + original +
			`,"RawRequest":{"Id":` + id + `,"Title":"` + secret + `","CallOut":"%%"}}`
	}
	for name, c := range map[string]struct {
		content string
		want    any
	}{
		"native":           {native(`"order-7"`), "order-7"},
		"native_escaped":   {native(`"order\u002d7"`), "order-7"},
		"native_space":     {native(`"` + secret + ` 7"`), nil},
		"native_long":      {native(`"` + strings.Repeat("x", 129) + `"`), nil},
		"native_number":    {native(`7`), nil},
		"native_null":      {native(`null`), nil},
		"not_json":         {`{"asyncCaller":1,"requestId":"` + secret, nil},
		"too_large":        {`{"asyncCaller":1,"requestId":"r","call":{"url":"https://t.example/","body":"` + strings.Repeat("x", 48<<10-80) + `"}}`, "r"},
		"nexus":            {nexus(`"o1"`, `"r1"`), "r1"},
		"nexus_original":   {nexus(`"o1"`, `null`), "o1"},
		"nexus_no_call":    {`{"originalrequestid":"o1","rawrequest":7}`, "o1"},
		"nexus_id_first":   {`{"RawRequest":{"id":"r1"},"OriginalRequestId":"o1"}`, "r1"},
		"nexus_no_id":      {nexus(`null`, `7`), nil},
		"neither_has_date": {`{"RawRequest":{"Id":"r1","CallOut":"eA=="},"CreatedAt":"` + secret + `"}`, "r1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 200}))
				b.deliver(c.content)
				lines := b.lines(t)
				if len(lines) != 1 || lines[0]["reason"] != "malformed" || lines[0]["request_id"] != c.want {
					t.Fatalf("want request id %v in %s", c.want, b.log)
				}
				known := []string{
					"action", "detail", "environment", "level", "message", "organization", "reason",
					"request_id", "time",
				}
				for _, field := range slices.Sorted(maps.Keys(lines[0])) {
					if !slices.Contains(known, field) {
						t.Errorf("field %s in %s", field, b.log)
					}
				}
				if strings.Contains(b.log.String(), secret) {
					t.Errorf("a part of the message is in %s", b.log)
				}
			})
		})
	}
}
