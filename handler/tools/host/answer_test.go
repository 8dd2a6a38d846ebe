package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	const jsonType = "application/json"
	for name, test := range map[string]struct {
		status      int
		contentType string
		body        string
		want        verdict
	}{
		"object":                 {200, jsonType, `{}`, success},
		"charset":                {200, "Application/JSON; charset=utf-8", `{}`, success},
		"text_json":              {200, "text/json", `{}`, success},
		"other_2xx":              {299, jsonType, `{"Outputs":{"res":1},"ReturnValue":5}`, success},
		"unknown_members":        {200, jsonType, `{"other":1}`, success},
		"null_members":           {200, jsonType, `{"Outputs":null,"Logs":null,"ReturnValue":null}`, success},
		"byte_order_mark":        {200, jsonType, "\ufeff{}", success},
		"empty":                  {200, jsonType, ``, hang},
		"empty_of_any_type":      {200, "text/plain", ``, hang},
		"empty_of_no_type":       {202, "", ``, hang},
		"no_content":             {204, "", ``, hang},
		"null":                   {200, jsonType, ` null `, hang},
		"white_space":            {200, jsonType, " \r\n", hang},
		"array":                  {200, jsonType, `[]`, failure},
		"string":                 {200, jsonType, `"ok"`, failure},
		"number":                 {200, jsonType, `1`, failure},
		"malformed":              {200, jsonType, `{"Logs":`, failure},
		"trailing":               {200, jsonType, `{} x`, failure},
		"too_deep":               {200, jsonType, nested(maxAnswerDepth + 1), failure},
		"text":                   {200, "text/plain", `{}`, failure},
		"white_space_text":       {200, "text/plain", ` `, failure},
		"no_type":                {200, "", `{}`, failure},
		"bad_type":               {200, "application/json; =", `{}`, failure},
		"outputs_are_no_object":  {200, jsonType, `{"Outputs":[]}`, failure},
		"logs_are_no_array":      {200, jsonType, `{"Logs":"x"}`, failure},
		"logs_hold_objects":      {200, jsonType, `{"Logs":[{}]}`, failure},
		"not_modified":           {304, jsonType, `{}`, failure},
		"bad_request":            {400, jsonType, `{}`, failure},
		"internal_error":         {500, jsonType, `{}`, failure},
		"internal_error_empty":   {500, "", ``, failure},
		"informational_is_error": {199, jsonType, `{}`, failure},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(test.status, test.contentType, []byte(test.body))
			if got.verdict != test.want {
				t.Errorf("verdict %d (%v), want %d", got.verdict, got.err, test.want)
			}
			if (got.err != nil) != (test.want == failure) {
				t.Errorf("error %v", got.err)
			}
		})
	}
}

func TestJudge_logs(t *testing.T) {
	got := judge(200, "application/json", []byte(`{"logs":["one","two\n",null,3,true]}`))
	if diff := cmp.Diff([]string{"one", "two\n", "3", "true"}, got.logs); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

func TestJudge_keeps_bodies_out_of_errors(t *testing.T) {
	for _, body := range []string{`{"secret`, `"secret"`, `{"Logs":"secret"}`, `{"Outputs":"secret"}`} {
		if got := judge(200, "application/json", []byte(body)); got.err == nil || strings.Contains(got.err.Error(), "secret") {
			t.Errorf("error for %s is %v, want one without the body", body, got.err)
		}
	}
}
