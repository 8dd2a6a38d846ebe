package message_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/message"
)

// nativeWith returns an envelope with a body in base64.
func nativeWith(contentType string, body string) string {
	return `{"asyncCaller":1,"call":{"url":"https://t.example/","headers":{"Content-Type":"` + contentType +
		`"},"bodyBase64":"` + inBase64(body) + `"}}`
}

// encodedWith returns an envelope with a body of a Content-Encoding.
func encodedWith(coding, body string) string {
	return strings.Replace(nativeWith(coding, body), "Content-Type", "Content-Encoding", 1)
}

// nexusWith returns a Nexus envelope with the text of a request.
func nexusWith(request string) string {
	return `{"RawRequest":{"Id":"i","CallOut":"` + inBase64(request) + `"}}`
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

// TestSearchedText: a text is found as a receiver reads it, in whatever form the sender has written it.
func TestSearchedText(t *testing.T) {
	const native = `{"asyncCaller":1,"call":{"url":"https://t.example/%s","body":%s}}`
	call := func(query, body string) string {
		return strings.NewReplacer("%s\"", query+"\"", "%s}", body+"}").Replace(native)
	}
	quoted := func(s string) string {
		text, _ := json.Marshal(s)
		return string(text)
	}
	const http = "POST /x HTTP/1.1\r\nHost: t.example\r\nContent-Type: "
	mime := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 50) + "José Müller"))
	for name, content := range map[string]string{
		"plain":            call("", quoted("José Müller")),
		"python":           call("", `"Jos\u00e9 M\u00fcller"`),
		"dotnet":           call("", `"Jos\u00E9\u0020M\u00FCller"`),
		"python_in_a_body": call("", quoted(`{"name":"Jos\u00e9 M\u00fcller"}`)),
		"python_twice":     call("", quoted(quoted(`{"name":"Jos\u00e9 M\u00fcller"}`))),
		"combining":        call("", quoted("Jose\u0301 Mu\u0308ller")),
		"url":              call("?n=Jos%C3%A9%20M%C3%BCller", `""`),
		"url_plus":         call("?n=Jos%c3%a9+M%c3%bcller", `""`),
		"url_latin":        call("?n=Jos%E9+M%FCller", `""`),
		"form":             call("", `"n=Jos%C3%A9+M%C3%BCller&x=1"`),
		"base64":           nativeWith("text/plain", "José Müller"),
		"base64_latin":     nativeWith("text/plain; charset=iso-8859-1", "Jos\xe9 M\xfcller"),
		"base64_unnamed":   nativeWith("text/plain", "Jos\xe9 M\xfcller"),
		"base64_utf16": nativeWith("text/plain; charset=utf-16le",
			strings.Join(strings.Split("Jos\xe9 M\xfcller", ""), "\x00")+"\x00"),
		"base64_in_a_string":  call("", quoted(`{"data":"`+inBase64("José Müller")+`"}`)),
		"base64_of_mime":      call("", quoted(mime[:76]+"\r\n"+mime[76:])),
		"base64_for_urls":     call("", quoted(base64.RawURLEncoding.EncodeToString([]byte("~~~???José Müller")))),
		"base64_plus_escaped": call("", `"`+strings.ReplaceAll(inBase64("~~~>>>José Müller"), "+", `\u002B`)+`"`),
		"xml":                 call("", quoted("<a>Jos&#233; M&#xfc;ller</a>")),
		"html":                call("", quoted("Jos&eacute;&#32;M&uuml;ller")),
		"context":             `{"asyncCaller":1,"call":{"url":"https://t.example/"},"context":"Jos\u00e9 M\u00fcller"}`,
		"nexus_text":          nexusWith(http + "text/plain\r\n\r\nJosé Müller"),
		"nexus_python":        nexusWith(http + "application/json\r\n\r\n{\"n\":\"Jos\\u00e9 M\\u00fcller\"}"),
		"nexus_form":          nexusWith(http + "application/x-www-form-urlencoded\r\n\r\nn=Jos%C3%A9+M%C3%BCller"),
		"nexus_latin":         nexusWith(http + "text/plain; charset=latin1\r\n\r\nJos\xe9 M\xfcller"),
		"nexus_title": strings.Replace(nexusWith("GET / HTTP/1.1\r\nHost: t\r\n\r\n"),
			`"Id"`, `"Title":"Jos\u00e9 M\u00fcller","Id"`, 1),
		"compressed":       encodedWith("gzip", gzipped("José Müller")),
		"malformed":        `{"asyncCaller":1,"call":{"n":"Jos\u00e9 M\u00fcller"`,
		"malformed_base64": inBase64(`{"n":"Jos\u00e9 M\u00fcller"}`),
	} {
		t.Run(name, func(t *testing.T) {
			m := read(inBase64(content))
			filter := message.Filter{Text: "JOSÉ müller"}
			if found, unsearched := filter.Match(m, []byte(content)); !found || unsearched {
				t.Errorf("found %t, unsearched %t: %s", found, unsearched, content)
			}
			filter.Text = "José Muller"
			if found, _ := filter.Match(m, []byte(content)); found {
				t.Error("what is not there is found")
			}
		})
	}
}

// TestUnsearchedText: what cannot be searched is not said to be without a text.
func TestUnsearchedText(t *testing.T) {
	const post = "POST /x HTTP/1.1\r\nHost: t.example\r\nContent-Type: "
	pdf := "%PDF-1.7\n" + strings.Repeat("\xff\x00\xfe", 10)
	escapes := strings.Repeat("%25", 20)
	for name, test := range map[string]struct {
		content string
		want    bool
	}{
		"text":             {nativeWith("application/json", `{"a":"b \u00e9 c%20d"}`), false},
		"binary":           {nativeWith("application/pdf", pdf), true},
		"binary_in_string": {`{"asyncCaller":1,"call":{"url":"https://t.example/","body":"` + inBase64(pdf) + `"}}`, true},
		"hash_in_string": {
			`{"asyncCaller":1,"call":{"url":"https://t.example/","body":` +
				`"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}}`, false,
		},
		"gzip":            {encodedWith("gzip", gzipped("a")), false},
		"gzip_unnamed":    {nativeWith("text/plain", gzipped("a")), true},
		"other_coding":    {encodedWith("br", "\xff\xfe\xfd"), true},
		"unknown_charset": {nativeWith("text/plain; charset=x-own", "a+b"), true},
		"utf7":            {nativeWith("text/plain; charset=utf-7", "Jos+AOk-"), true},
		"nexus_latin":     {nexusWith(post + "text/plain; charset=latin1\r\n\r\n\xe9\xfc\xe9"), false},
		"nexus_binary":    {nexusWith(post + "application/pdf\r\n\r\n" + pdf), true},
		"quoted_printable": {nativeWith("multipart/mixed; boundary=b",
			"--b\r\nContent-Transfer-Encoding: Quoted-Printable\r\n\r\nJos=C3=A9\r\n--b--"), true},
		"large":         {nexusWith(post + "text/xml\r\n\r\n" + strings.Repeat(`<a b="\\u00e9%20&amp;">c d</a>`, 1100)), false},
		"escaped_often": {nativeWith("text/plain", strings.Repeat("%25", 20)+strings.Repeat("25", 20)+escapes), true},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(inBase64(test.content))
			found, unsearched := message.Filter{Text: "needle"}.Match(m, []byte(test.content))
			if found || unsearched != test.want {
				t.Errorf("found %t, unsearched %t, want %t", found, unsearched, test.want)
			}
			other := message.Filter{Text: "needle", Reasons: []string{"other"}}
			if _, unsearched := other.Match(m, []byte(test.content)); unsearched {
				t.Error("a message that other filters leave out is counted")
			}
		})
	}
}
