package inspect_test

import (
	"testing"
	"time"

	"asynccaller/handler/internal/poison/inspect"
)

func TestFilter(t *testing.T) {
	m := inspect.Message{
		ID: "550e8400-e29b-41d4-a716-446655440000", RequestID: "order-42", Reason: "expired", Status: 503, Attempts: 3,
		Host: "api.target.example:8443", Method: "POST", Since: inserted,
	}
	silent := inspect.Message{Reason: "malformed"}
	group := func(by inspect.By, key string) inspect.Filter {
		return inspect.Filter{Group: &inspect.Group{By: by, Key: key}}
	}
	for name, test := range map[string]struct {
		filter inspect.Filter
		m      inspect.Message
		want   bool
	}{
		"all":                   {inspect.Filter{}, m, true},
		"reason":                {inspect.Filter{Reasons: []string{"rejected", "expired"}}, m, true},
		"other_reason":          {inspect.Filter{Reasons: []string{"rejected"}}, m, false},
		"status":                {inspect.Filter{Statuses: []int{503}}, m, true},
		"other_status":          {inspect.Filter{Statuses: []int{0, 500}}, m, false},
		"no_answer":             {inspect.Filter{Statuses: []int{0}}, silent, true},
		"method":                {inspect.Filter{Methods: []string{"post"}}, m, true},
		"other_method":          {inspect.Filter{Methods: []string{"PUT"}}, m, false},
		"host":                  {inspect.Filter{Hosts: []string{"API.target.example"}}, m, true},
		"host_and_port":         {inspect.Filter{Hosts: []string{"api.target.example:8443"}}, m, true},
		"host_other_port":       {inspect.Filter{Hosts: []string{"api.target.example:443"}}, m, false},
		"suffix":                {inspect.Filter{Hosts: []string{"*.Target.example"}}, m, true},
		"suffix_and_port":       {inspect.Filter{Hosts: []string{"*.target.example:8443"}}, m, true},
		"suffix_of_a_word":      {inspect.Filter{Hosts: []string{"*.arget.example"}}, m, false},
		"suffix_itself":         {inspect.Filter{Hosts: []string{"*.api.target.example"}}, m, false},
		"star_without_dot":      {inspect.Filter{Hosts: []string{"*example"}}, m, false},
		"host_of_none":          {inspect.Filter{Hosts: []string{"*.", "", "*"}}, silent, false},
		"unicode":               {inspect.Filter{Hosts: []string{"BÜCHER.example"}}, inspect.Message{Host: "xn--bcher-kva.example:80"}, true},
		"unicode_suffix":        {inspect.Filter{Hosts: []string{"*.bücher。example"}}, inspect.Message{Host: "a.xn--bcher-kva.example"}, true},
		"ipv6":                  {inspect.Filter{Hosts: []string{"[::1]"}}, inspect.Message{Host: "[::1]:80"}, true},
		"ipv6_other":            {inspect.Filter{Hosts: []string{"[::1]:81"}}, inspect.Message{Host: "[::1]"}, false},
		"ipv6_without_brackets": {inspect.Filter{Hosts: []string{"2001:DB8::0:1"}}, inspect.Message{Host: "[2001:db8::1]:80"}, true},
		"ipv6_spelled_out":      {inspect.Filter{Hosts: []string{"[0:0:0:0:0:0:0:1]:80"}}, inspect.Message{Host: "[::1]:80"}, true},
		"final_dot":             {inspect.Filter{Hosts: []string{"api.target.example"}}, inspect.Message{Host: "api.target.example.:80"}, true},
		"final_dot_wanted":      {inspect.Filter{Hosts: []string{"api.target.example.:8443"}}, m, true},
		"ipv4":                  {inspect.Filter{Hosts: []string{"127.0.0.1"}}, inspect.Message{Host: "127.0.0.1:7071"}, true},
		"ipv4_other_port":       {inspect.Filter{Hosts: []string{"127.0.0.1:7072"}}, inspect.Message{Host: "127.0.0.1:7071"}, false},
		"since":                 {inspect.Filter{Since: inserted}, m, true},
		"since_later":           {inspect.Filter{Since: inserted.Add(time.Second)}, m, false},
		"until":                 {inspect.Filter{Until: inserted.Add(time.Second)}, m, true},
		"until_then":            {inspect.Filter{Until: inserted}, m, false},
		"request":               {inspect.Filter{RequestID: "order-42"}, m, true},
		"other_request":         {inspect.Filter{RequestID: "order-4"}, m, false},
		"id":                    {inspect.Filter{ID: "550e8400"}, m, true},
		"other_id":              {inspect.Filter{ID: "650e8400"}, m, false},
		"attempts":              {inspect.Filter{MinAttempts: 3}, m, true},
		"more_attempts":         {inspect.Filter{MinAttempts: 4}, m, false},
		"group":                 {group(inspect.ByError, "answered 503"), m, true},
		"other_group":           {group(inspect.ByError, "answered 500"), m, false},
		"group_without_host":    {group(inspect.ByHost, "(no envelope)"), silent, true},
		"one_of_two_is_no_all":  {inspect.Filter{Reasons: []string{"expired"}, Statuses: []int{500}}, m, false},
		"text_without_contents": {inspect.Filter{Text: "x"}, silent, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.filter.Match(test.m, nil); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestFilterText(t *testing.T) {
	native := `{"asyncCaller":1,"call":{"url":"https://target.example/?a=Needle1","headers":{"X-A":"Needle2"},"body":"say \"Needle\u0033\""},` +
		`"context":"Needle4","deadLetter":{"reason":"x","detail":"Needle5 \u00e4"}}`
	nexus := `{"LatestResponse":"` + inBase64("HTTP/1.1 400 No\r\nContent-Type: text/plain\r\n\r\nNeedle1") + `","RawRequest":{"Id":"i",` +
		`"Title":"Needle2","Context":"` +
		inBase64(`"Needle3"`) + `","CallOut":"` + inBase64("PUT /?a=Needle4 HTTP/1.1\r\nHost: t.example\r\nX-A: Needle5\r\nContent-Type: text/plain\r\n\r\nNeedle6") +
		`","CallBack":"` + inBase64("POST /Needle7 HTTP/1.1\r\nHost: s.example\r\n\r\n") + `"}}`
	for name, test := range map[string]struct {
		content string
		found   []string
	}{
		"native":    {native, []string{"Needle1", "nEEDLE2", "say \"needle3\"", "needle4", "NEEDLE5 Ä", "x-a\":\"needle2", "x-a: needle2"}},
		"nexus":     {nexus, []string{"Needle1", "Needle2", "needle3", "/?a=needle4", "x-a: needle5", "NEEDLE6", "needle7"}},
		"malformed": {"\xff Needle1 {", []string{"needle1 {"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := read(inBase64(test.content))
			for _, text := range test.found {
				if !(inspect.Filter{Text: text}).Match(m, []byte(test.content)) {
					t.Errorf("%q is not found", text)
				}
			}
			if (inspect.Filter{Text: "needle0"}).Match(m, []byte(test.content)) {
				t.Error("what is not there is found")
			}
		})
	}
}

func TestMatchID(t *testing.T) {
	m := inspect.Message{ID: "550e8400-e29b-41d4-a716-446655440000", RequestID: "order-42"}
	for id, want := range map[string]bool{
		"550e8400-e29b-41d4-a716-446655440000": true, "550E8400": true, "550e8400-e29b": true, "order-42": true,
		"550e840": false, "order-4": false, "ORDER-42": false, "": false, "550e8400-e29b-41d4-a716-4466554400001": false,
	} {
		if got := inspect.MatchID(m, id); got != want {
			t.Errorf("%q: got %t", id, got)
		}
	}
	if inspect.MatchID(inspect.Message{}, "") {
		t.Error("no id names a message without one")
	}
}
