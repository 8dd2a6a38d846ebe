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
		"all":              {message.Filter{}, m, true},
		"reason":           {message.Filter{Reasons: []string{"rejected", "expired"}}, m, true},
		"other_reason":     {message.Filter{Reasons: []string{"rejected"}}, m, false},
		"status":           {status(bounds.New(503, 503)), m, true},
		"other_status":     {status(bounds.New(0, 0), bounds.New(500, 500)), m, false},
		"class":            {status(bounds.New(400, 499), bounds.New(500, 599)), m, true},
		"other_class":      {status(bounds.New(400, 499)), m, false},
		"class_of_silent":  {status(bounds.New(100, 999)), silent, false},
		"no_answer":        {status(bounds.New(0, 0)), silent, true},
		"method":           {message.Filter{Methods: []string{"post"}}, m, true},
		"other_method":     {message.Filter{Methods: []string{"PUT"}}, m, false},
		"host":             {message.Filter{Hosts: []string{"API.target.example"}}, m, true},
		"host_and_port":    {message.Filter{Hosts: []string{"api.target.example:8443"}}, m, true},
		"host_other_port":  {message.Filter{Hosts: []string{"api.target.example:443"}}, m, false},
		"https_port":       {message.Filter{Hosts: []string{"t.example:443"}}, message.Message{Host: "t.example"}, true},
		"http_port":        {message.Filter{Hosts: []string{"t.example:80"}}, message.Message{Host: "T.example."}, true},
		"no_default_port":  {message.Filter{Hosts: []string{"t.example:8443"}}, message.Message{Host: "t.example"}, false},
		"port_with_zeros":  {message.Filter{Hosts: []string{"t.example:0443"}}, message.Message{Host: "t.example:443"}, true},
		"suffix":           {message.Filter{Hosts: []string{"*.Target.example"}}, m, true},
		"suffix_and_port":  {message.Filter{Hosts: []string{"*.target.example:8443"}}, m, true},
		"suffix_of_a_word": {message.Filter{Hosts: []string{"*.arget.example"}}, m, false},
		"suffix_itself":    {message.Filter{Hosts: []string{"*.api.target.example"}}, m, false},
		"star_without_dot": {message.Filter{Hosts: []string{"*example"}}, m, false},
		"host_of_none":     {message.Filter{Hosts: []string{"*.", "", "*"}}, silent, false},
		"unicode": {
			message.Filter{Hosts: []string{"BÜCHER.example"}},
			message.Message{Host: "xn--bcher-kva.example:80"},
			true,
		},
		"unicode_suffix": {
			message.Filter{Hosts: []string{"*.bücher。example"}},
			message.Message{Host: "a.xn--bcher-kva.example"},
			true,
		},
		"ipv6":       {message.Filter{Hosts: []string{"[::1]"}}, message.Message{Host: "[::1]:80"}, true},
		"ipv6_other": {message.Filter{Hosts: []string{"[::1]:81"}}, message.Message{Host: "[::1]"}, false},
		"ipv6_without_brackets": {
			message.Filter{Hosts: []string{"2001:DB8::0:1"}},
			message.Message{Host: "[2001:db8::1]:80"},
			true,
		},
		"ipv6_spelled_out": {
			message.Filter{Hosts: []string{"[0:0:0:0:0:0:0:1]:80"}},
			message.Message{Host: "[::1]:80"},
			true,
		},
		"final_dot": {
			message.Filter{Hosts: []string{"api.target.example"}},
			message.Message{Host: "api.target.example.:80"},
			true,
		},
		"ipv6_of_earlier_row": {message.Filter{Hosts: []string{"[::1]:443"}}, message.Message{Host: "[0::1]"}, true},
		"zone":                {message.Filter{Hosts: []string{"fe80::1"}}, message.Message{Host: "[fe80::1%eth0]"}, true},
		"final_dot_wanted":    {message.Filter{Hosts: []string{"api.target.example.:8443"}}, m, true},
		"ipv4": {
			message.Filter{Hosts: []string{"127.0.0.1"}},
			message.Message{Host: "127.0.0.1:7071"},
			true,
		},
		"ipv4_other_port": {
			message.Filter{Hosts: []string{"127.0.0.1:7072"}},
			message.Message{Host: "127.0.0.1:7071"},
			false,
		},
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
