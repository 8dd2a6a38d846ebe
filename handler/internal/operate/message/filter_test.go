package message_test

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
)

func TestFilter(t *testing.T) {
	m := message.Message{
		ID: "550e8400-e29b-41d4-a716-446655440000", RequestID: "order-42", Reason: "expired", Status: 503, Attempts: 3,
		Host: "api.target.example:8443", Method: "POST", Path: "/orders/7", PathPattern: "/orders/{n}", Since: inserted,
	}
	silent := message.Message{Reason: "malformed"}
	group := func(by message.By, key string) message.Filter {
		return message.Filter{Group: &message.Group{By: by, Key: key}}
	}
	status := func(ranges ...bounds.Range[int]) message.Filter { return message.Filter{Statuses: ranges} }
	for name, test := range map[string]struct {
		filter message.Filter
		m      message.Message
		want   bool
	}{
		"all":                   {message.Filter{}, m, true},
		"reason":                {message.Filter{Reasons: []string{"rejected", "expired"}}, m, true},
		"other_reason":          {message.Filter{Reasons: []string{"rejected"}}, m, false},
		"status":                {status(bounds.New(503, 503)), m, true},
		"other_status":          {status(bounds.New(0, 0), bounds.New(500, 500)), m, false},
		"class":                 {status(bounds.New(400, 499), bounds.New(500, 599)), m, true},
		"other_class":           {status(bounds.New(400, 499)), m, false},
		"class_of_silent":       {status(bounds.New(100, 999)), silent, false},
		"no_answer":             {status(bounds.New(0, 0)), silent, true},
		"method":                {message.Filter{Methods: []string{"post"}}, m, true},
		"other_method":          {message.Filter{Methods: []string{"PUT"}}, m, false},
		"path":                  {message.Filter{Paths: []string{"/items", "/orders/7"}}, m, true},
		"path_pattern":          {message.Filter{Paths: []string{"/orders/{n}"}}, m, true},
		"path_beginning":        {message.Filter{Paths: []string{"/ord*"}}, m, true},
		"other_path":            {message.Filter{Paths: []string{"/orders", "/order/*"}}, m, false},
		"path_of_silent":        {message.Filter{Paths: []string{"/*", "*"}}, silent, false},
		"since":                 {message.Filter{Since: inserted}, m, true},
		"since_later":           {message.Filter{Since: inserted.Add(time.Second)}, m, false},
		"until":                 {message.Filter{Until: inserted.Add(time.Second)}, m, true},
		"until_then":            {message.Filter{Until: inserted}, m, false},
		"request":               {message.Filter{RequestID: "order-42"}, m, true},
		"other_request":         {message.Filter{RequestID: "order-4"}, m, false},
		"id":                    {message.Filter{ID: "550e8400"}, m, true},
		"other_id":              {message.Filter{ID: "650e8400"}, m, false},
		"group":                 {group(message.ByError, "answered 503"), m, true},
		"other_group":           {group(message.ByError, "answered 500"), m, false},
		"group_without_host":    {group(message.ByHost, "(no envelope)"), silent, true},
		"one_of_two_is_no_all":  {message.Filter{Reasons: []string{"expired"}, Methods: []string{"GET"}}, m, false},
		"text_without_contents": {message.Filter{Text: "x"}, silent, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := test.filter.Match(test.m, nil); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestFilterHosts: a host is found in whatever form it is wanted or written.
func TestFilterHosts(t *testing.T) {
	for name, test := range map[string]struct {
		wanted []string
		host   string
		want   bool
	}{
		"host":                  {[]string{"API.target.example"}, "api.target.example:8443", true},
		"host_and_port":         {[]string{"api.target.example:8443"}, "api.target.example:8443", true},
		"host_other_port":       {[]string{"api.target.example:443"}, "api.target.example:8443", false},
		"https_port":            {[]string{"t.example:443"}, "t.example", true},
		"http_port":             {[]string{"t.example:80"}, "T.example.", true},
		"no_default_port":       {[]string{"t.example:8443"}, "t.example", false},
		"port_with_zeros":       {[]string{"t.example:0443"}, "t.example:443", true},
		"suffix":                {[]string{"*.Target.example"}, "api.target.example:8443", true},
		"suffix_and_port":       {[]string{"*.target.example:8443"}, "api.target.example:8443", true},
		"suffix_of_a_word":      {[]string{"*.arget.example"}, "api.target.example:8443", false},
		"suffix_itself":         {[]string{"*.api.target.example"}, "api.target.example:8443", false},
		"star_without_dot":      {[]string{"*example"}, "api.target.example:8443", false},
		"host_of_none":          {[]string{"*.", "", "*"}, "", false},
		"unicode":               {[]string{"BÜCHER.example"}, "xn--bcher-kva.example:80", true},
		"unicode_suffix":        {[]string{"*.bücher。example"}, "a.xn--bcher-kva.example", true},
		"ipv6":                  {[]string{"[::1]"}, "[::1]:80", true},
		"ipv6_other":            {[]string{"[::1]:81"}, "[::1]", false},
		"ipv6_without_brackets": {[]string{"2001:DB8::0:1"}, "[2001:db8::1]:80", true},
		"ipv6_spelled_out":      {[]string{"[0:0:0:0:0:0:0:1]:80"}, "[::1]:80", true},
		"final_dot":             {[]string{"api.target.example"}, "api.target.example.:80", true},
		"ipv6_of_earlier_row":   {[]string{"[::1]:443"}, "[0::1]", true},
		"zone":                  {[]string{"fe80::1"}, "[fe80::1%eth0]", true},
		"final_dot_wanted":      {[]string{"api.target.example.:8443"}, "api.target.example:8443", true},
		"ipv4":                  {[]string{"127.0.0.1"}, "127.0.0.1:7071", true},
		"ipv4_other_port":       {[]string{"127.0.0.1:7072"}, "127.0.0.1:7071", false},
	} {
		got, _ := message.Filter{Hosts: test.wanted}.Match(message.Message{Host: test.host}, nil)
		if got != test.want {
			t.Errorf("%s: %q finds %s: %t", name, test.wanted, test.host, got)
		}
	}
}

// TestHostOfMessage: the message of an envelope, the row of it and a row that an earlier version wrote have the same
// host, by which filters and groups find all of them.
func TestHostOfMessage(t *testing.T) {
	for _, c := range []struct{ url, earlier, want string }{
		{"https://h.example/", "h.example", "h.example"},
		{"https://H.Example.:0443/", "h.example.", "h.example"},
		{"http://h.example:80", "H.EXAMPLE", "h.example"},
		{"http://h.example.:443/", "h.example.:443", "h.example:443"},
		{"https://BÜCHER.example.:8443/", "bücher.example.:08443", "xn--bcher-kva.example:8443"},
		{"http://[2001:DB8:0::1]/", "[2001:db8:0::1]", "[2001:db8::1]"},
	} {
		text := fmt.Sprintf(`{"asyncCaller":1,"call":{"url":%q}}`, c.url)
		earlier := message.FromRow(record.Row{TargetHost: c.earlier}).Message
		for _, m := range []message.Message{read(inBase64(text)), earlier} {
			if m.Host != c.want {
				t.Errorf("%s: got %s, want %s", c.url, m.Host, c.want)
			}
			for _, wanted := range []string{c.want, c.earlier} {
				group, err := message.ParseGroup("host="+wanted, message.PoisonCriteria())
				filter := message.Filter{Hosts: []string{wanted}, Group: &group}
				if isSelected, _ := filter.Match(m, nil); !isSelected || err != nil {
					t.Errorf("%s does not find %s: %v", wanted, m.Host, err)
				}
			}
		}
	}
}

func TestFilterText(t *testing.T) {
	native := `{"asyncCaller":1,"call":{"url":"https://target.example/?a=Needle1","headers":{"X-A":"Needle2"},` +
		`"body":"say \"Needle\u0033\""},` +
		`"context":"Needle4","deadLetter":{"reason":"x","detail":"Needle5 \u00e4"}}`
	nexus := `{"LatestResponse":"` + inBase64("HTTP/1.1 400 No\r\nContent-Type: text/plain\r\n\r\nNeedle1") +
		`","RawRequest":{"Id":"i",` +
		`"Title":"Needle2","Context":"` +
		inBase64(`"Needle3"`) + `","CallOut":"` + inBase64("PUT /?a=Needle4 HTTP/1.1\r\nHost: t.example\r\nX-A: "+
		"Needle5\r\nContent-Type: text/plain\r\n\r\nNeedle6") +
		`","CallBack":"` + inBase64("POST /Needle7 HTTP/1.1\r\nHost: s.example\r\n\r\n") + `"}}`
	for name, test := range map[string]struct {
		content string
		found   []string
	}{
		"native": {native, []string{
			"Needle1", "nEEDLE2", "say \"needle3\"", "needle4", "NEEDLE5 Ä",
			"x-a\":\"needle2", "x-a: needle2",
		}},
		"nexus": {nexus, []string{
			"Needle1", "Needle2", "needle3", "/?a=needle4", "x-a: needle5", "NEEDLE6",
			"needle7",
		}},
		"malformed": {"\xff Needle1 {", []string{"needle1 {"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(inBase64(test.content))
			for _, text := range test.found {
				if found, _ := (message.Filter{Text: text}).Match(m, []byte(test.content)); !found {
					t.Errorf("%q is not found", text)
				}
			}
			if found, _ := (message.Filter{Text: "needle0"}).Match(m, []byte(test.content)); found {
				t.Error("what is not there is found")
			}
		})
	}
}

func TestMatchID(t *testing.T) {
	m := message.Message{ID: "550e8400-e29b-41d4-a716-446655440000", RequestID: "order-42"}
	for id, want := range map[string]bool{
		"550e8400-e29b-41d4-a716-446655440000": true, "550E8400": true, "550e8400-e29b": true, "order-42": true,
		"550e840": false, "order-4": false, "ORDER-42": false, "": false,
		"550e8400-e29b-41d4-a716-4466554400001": false,
	} {
		if got := message.MatchID(m, id); got != want {
			t.Errorf("%q: got %t", id, got)
		}
	}
	if message.MatchID(message.Message{}, "") {
		t.Error("no id names a message without one")
	}
}
