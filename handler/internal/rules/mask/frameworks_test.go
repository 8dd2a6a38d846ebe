package mask_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
)

// framework is an answer as a framework or a server writes it. Its secret is the word canary.
type framework struct{ mediaType, body, line string }

// shortAnswers are beside those of testdata/frameworks.txtar.
var shortAnswers = map[string]framework{
	"spring": {
		"application/json", `{"timestamp":"2026-11-29T10:00:00.000+00:00","status":400,"error":"Bad Request",` +
			`"message":"Validation failed for object='login': password=canary",` +
			`"errors":[{"objectName":"login","field":"password","rejectedValue":"canary","code":"Size"}],` +
			`"headers":["Authorization","Bearer canary","X-Api-Key","canary"],` +
			`"trace":"org.springframework.web.bind.MethodArgumentNotValidException: no\n\tat a.B(canary)\ncanary",` +
			`"config":"{\"password\":\"canary\"}","datasource":"jdbc:mysql://app:canary@db/shop?password=canary",` +
			`"path":"/orders"}`,
		`{"timestamp":"2026-11-29T10:00:00.000+00:00","status":400,"error":"Bad Request",` +
			`"message":"Validation failed for object='login': password=***",` +
			`"errors":[{"objectName":"login","field":"password","rejectedValue":"***","code":"Size"}],` +
			`"headers":["Authorization","Bearer ***","X-Api-Key","***"],` +
			`"trace":"org.springframework.web.bind.MethodArgumentNotValidException: no …",` +
			`"config":"{\"password\":\"***\"}","datasource":"jdbc:mysql://***@db/shop?password=***",` +
			`"path":"/orders"}`,
	},
	"spring_cut": {
		"application/json", `{"timestamp":"2026-11-29T10:00:00.000+00:00","status":500,` +
			`"error":"Internal Server Error","pairs":[{"value":"canary","name":"password"}],"token":"canary",` +
			`"message":"could not execute statement","trace":"java.lang.IllegalStateException: pool is empty\n` +
			strings.Repeat(`\tat com.example.Pool.get(Pool.java:1) canary\n`, 100) + `"}`,
		`{"timestamp":"2026-11-29T10:00:00.000+00:00","status":500,"error":"Internal Server Error",` +
			`"pairs":[{"value":"***","name":"password"}],"token":"***","message":"could not execute statement",` +
			`"trace":"java.lang.IllegalStateException: pool is empty …"}`,
	},
	"express_text": {"text/plain", "MongoServerError: no connection to mongodb://app:canary@db:27017/shop?authSource=admin\n" +
		"  password: 'canary'\n", "MongoServerError: no connection to mongodb://***@db:27017/shop?authSource=***"},
	"php_source": {"text/html", `<?php $db->connect("app", "canary"); ?>`, "(unreadable answer)"},
	"nginx": {
		"text/html", "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad " +
			"Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n<!-- token canary -->\r\n</body>\r\n</html>\r\n",
		"502 Bad Gateway",
	},
	"s3": {"application/xml", `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NoSuchBucket</Code><AWSAccessKeyId>canary</AWSAccessKeyId><Message>The specified bucket does not exist` +
		`</Message><StringToSign>canary</StringToSign></Error>`, "The specified bucket does not exist"},
	"text": {
		"text/plain", "Order 17: no login with password=canary\ntoken:\ncanary\n",
		"Order 17: no login with password=***",
	},
	"text_command": {"text/plain", "mysql: error in mysql --password canary --host db", "mysql: error in mysql --password ***"},
	"text_bearer":  {"text/plain", "the request had Bearer canary", "the request had Bearer ***"},
	"text_base64": {
		"text/plain", "order 17 is closed, state cGFzc3dvcmQ9Y2FuYXJ5IGFuZCBtb3JlMQ==",
		"order 17 is closed, state ***",
	},
	"text_user": {"text/plain", "no connection to app:canary@tcp(db:3306)/shop", "no connection to ***@tcp(db:3306)/shop"},
	"env": {
		"text/plain", "# settings of shop\nDB_HOST=db\nDB_PASSWORD=canary\nexport API_KEY='canary'\n",
		"# settings of shop",
	},
	"ini":       {"text/plain", "[client]\npassword\n=\ncanary\n", "[client]"},
	"csv":       {"text/csv", "user,password\nbob,canary\n", "user,password"},
	"html_name": {"text/html", "<p>The <b>password</b> canary, and <i>token</i><br>canary", "The password ***"},
	"html_attribute": {
		"text/html", `<p title='a>canary'>No order<input type="password" value="canary>canary">`,
		"No order",
	},
	"html_cut":  {"text/html", `<h1>Bad Gateway</h1><input value="canary`, "Bad Gateway"},
	"xml_cut":   {"application/xml", `<error><token>canary</token><message>Order 17 is closed</message><pin>canary`, "Order 17 is closed"},
	"xml_none":  {"application/xml", `<error code="17"><password>canary</password></error>`, "(unreadable answer)"},
	"xml_items": {"application/xml", `<list><item>no order</item><item name="password">canary</item><item>canary</item></list>`, "no order"},
	"plist":     {"application/xml", `<dict><key>password</key><string>canary</string></dict>`, "(unreadable answer)"},
	"xml_dtd":   {"application/xml", `<!DOCTYPE a [<!ENTITY x "a>canary">]><a>no order</a>`, "(unreadable answer)"},
	"json_lines": {
		"application/x-ndjson", `{"error":"no order"}` + "\n" + `{"name":"x","value":"canary"}` + "\n",
		`{"error":"no order"}`,
	},
	"json_broken": {"application/json", `{"error":"no order","list":[1,2], pwd: "canary"}`, `{"error":"no order","list":[1,2]}`},
	"log": {
		"text/plain", "[2026-11-29 10:00:00] ERROR no order 17\n[2026-11-29 10:00:01] token\ncanary",
		"[2026-11-29 10:00:00] ERROR no order 17",
	},
	"form": {
		"application/x-www-form-urlencoded", "error=no+order&client_secret=canary&text=token%3Dcanary%0Acanary",
		"error=no+order&client_secret=***&text=token=***",
	},
	"form_broken": {"application/x-www-form-urlencoded", "password=canary&a=%zz", "(unreadable answer)"},
	"utf16":       {"text/plain", "p\x00a\x00s\x00s\x00w\x00o\x00r\x00d\x00=\x00c\x00a\x00n\x00", "(binary answer)"},
	"control":     {"text/plain", "no order\x1b[31m, password\x00canary and more of this text", "no order\ufffd[31m, password\ufffd***"},
}

// frameworks returns all answers.
func frameworks(t *testing.T) map[string]framework {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/frameworks.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(shortAnswers)
	for _, file := range archive.Files {
		name, mediaType, _ := strings.Cut(strings.TrimSuffix(file.Name, ")"), " (")
		line, body, _ := strings.Cut(string(file.Data), "\n")
		all[name] = framework{mediaType, body, line}
	}
	return all
}

// TestFrameworks checks that no answer, body or content of these frameworks shows a secret without --reveal, and that
// the line that stands for it says what is wrong.
func TestFrameworks(t *testing.T) {
	for name, test := range frameworks(t) {
		t.Run(name, func(t *testing.T) {
			answer := &envelope.Answer{
				Status: 500, Header: http.Header{"Content-Type": {test.mediaType}}, Body: []byte(test.body),
			}
			if got := mask.AnswerLine(answer.Excerpt()); got != test.line {
				t.Errorf("line %q\nwant %q", got, test.line)
			}
			message := "HTTP/1.1 500 No\r\nContent-Type: " + test.mediaType + "\r\n\r\n" + test.body
			request := "POST / HTTP/1.1\r\nHost: t.example\r\nContent-Type: " + test.mediaType + "\r\n\r\n" + test.body
			excerpt := answer.Excerpt()
			contents := map[string]string{
				"native": fmt.Sprintf(`{"asyncCaller":1,"requestId":"a","call":{"url":"https://t.example",`+
					`"headers":{"Content-Type":%s},"bodyBase64":%s},"context":{"text":%s,"list":[%s]},`+
					`"deadLetter":{"reason":"rejected","queue":"q","answer":{"status":500,"mediaType":%s,"text":%s}}}`,
					quoted(test.mediaType), quoted(inBase64(test.body)), quoted(test.body), quoted(test.body),
					quoted(excerpt.MediaType), quoted(excerpt.Text)),
				"untyped": fmt.Sprintf(`{"asyncCaller":1,"call":{"url":"https://t.example","body":%s},`+
					`"deadLetter":{"reason":"rejected","answer":{"text":%s}}}`, quoted(test.body), quoted(test.body)),
				"nexus": fmt.Sprintf(`{"Organization":"o","LatestResponse":%q,"RawRequest":{"Id":"a","Context":%q,`+
					`"CallOut":%q,"CallOutUriScheme":"https"}}`, inBase64(message),
					inBase64(`{"text":`+quoted(test.body)+`}`), inBase64(request)),
				"raw":    test.body,
				"header": `{"asyncCaller":1,"call":{"url":"https://t.example","headers":{"X-Error":` + quoted(test.body) + `}}}`,
			}
			for where, content := range contents {
				mustBeMasked(t, where, content)
			}
		})
	}
}

// mustBeMasked checks all that can be shown of a content.
func mustBeMasked(t *testing.T, where, content string) {
	t.Helper()
	shown := []string{
		string(mask.ShowContent([]byte(content), mask.Hidden)),
		string(mask.Diff([]byte(content), []byte(nativeSecrets), mask.Hidden)),
		string(mask.Diff([]byte("x"), []byte(content), mask.Hidden)),
	}
	if e, err := envelope.Parse([]byte(content)); err == nil {
		shown = append(shown, fmt.Sprintf("%+v", mask.ShowCall(e, mask.Hidden)), mask.AnswerLine(e.LatestAnswer()),
			fmt.Sprintf("%+v", mask.ShowAnswer(e, mask.Hidden)))
	} else if where == "native" || where == "untyped" || where == "nexus" {
		t.Error(err)
	}
	for _, text := range shown {
		mustBePrintable(t, text)
		if at := strings.Index(strings.ToLower(text), "canary"); at >= 0 {
			t.Errorf("%s shows a secret: %s", where, text)
		}
	}
}

// TestFrameworksCut cuts the answers anywhere, as the limit of an excerpt can.
func TestFrameworksCut(t *testing.T) {
	for name, test := range frameworks(t) {
		for n := 0; n < min(len(test.body), 2<<10); n += 11 {
			x := &envelope.Excerpt{MediaType: test.mediaType, Text: test.body[:n], Truncated: true}
			e := &envelope.Envelope{DeadLetter: &envelope.DeadLetter{Answer: x}}
			shown := mask.AnswerLine(x) + mask.ShowAnswer(e, mask.Hidden).Text +
				string(mask.ShowContent([]byte("["+quoted(x.Text)+"]"), mask.Hidden))
			if strings.Contains(shown, "cana") && name != "text_user" {
				t.Fatalf("%s, cut at %d: %s", name, n, shown)
			}
		}
	}
}
