package explain_test

import (
	"encoding/json"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/retry"
)

// TestExplainAtTheEndOfTime: an envelope that is given up after the year 9999, which no JSON of ours can
// hold, is explained all the same.
func TestExplainAtTheEndOfTime(t *testing.T) {
	rules := decision.Rules{Expiration: 7 * 24 * time.Hour, Retry: retry.Default()}
	for _, member := range []string{
		`"createdAt":"9999-12-31T23:59:59Z"`, `"notBefore":"9999-12-31T23:59:59Z"`,
		`"deadLetter":{"at":"9999-12-31T23:59:59-01:00"}`,
	} {
		content := `{"asyncCaller":1,` + member + `,"call":{"url":"http://t.example/"}}`
		x := explain.About(rules, explain.Question{
			Queue: "q", MessageID: "m", Content: []byte(content),
			Now: time.Now(), MaxContentBytes: 48 << 10,
		})
		if _, err := json.Marshal(x); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
}
