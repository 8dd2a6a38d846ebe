package outbound_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names is a name server. For each name it has the first answer, the second answer and so on; it repeats the last one.
// Other names do not exist.
type names struct {
	answers map[string][]string // addresses separated by spaces, or broken
	serving sync.WaitGroup

	mu    sync.Mutex
	asked map[dnsmessage.Question]int
	// domain is the search list of the client, and full is true if the latest look-up was that of a full name.
	domain string
	full   bool
}

// broken is the answer of a name server that fails.
const broken = "broken"

func newNames(tb testing.TB, answers map[string][]string) *names {
	tb.Helper()
	n := &names{answers: answers, asked: map[dnsmessage.Question]int{}}
	tb.Cleanup(n.serving.Wait)
	return n
}

// resolver returns a resolver that uses this server.
func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		n.serving.Go(func() {
			defer func() { _ = theirs.Close() }()
			n.reply(theirs)
		})
		return ours, nil
	}}
}

// search returns a context for look-ups with a search list of one domain, which is tried before the name as it is. A
// resolver has the search list of the machine, which a test cannot change, so the server completes the names that are
// looked up without a final dot.
func (n *names) search(ctx context.Context, domain string) context.Context {
	n.domain = domain
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{DNSStart: func(lookup httptrace.DNSStartInfo) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.full = strings.HasSuffix(lookup.Host, ".")
	}})
}

// count returns the number of questions so far.
func (n *names) count() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, times := range n.asked {
		count += times
	}
	return count
}

// reply answers one question, framed as in TCP.
func (n *names) reply(c net.Conn) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(length[:]))
	var message dnsmessage.Message
	if _, err := io.ReadFull(c, query); err != nil || message.Unpack(query) != nil {
		return
	}
	n.answer(&message)
	packed, err := message.Pack()
	if err != nil {
		return
	}
	_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...))
}

func (n *names) answer(m *dnsmessage.Message) {
	question := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	n.mu.Lock()
	if _, completed := n.answers[name+"."+n.domain]; completed && !n.full {
		name += "." + n.domain
	}
	answers, exists := n.answers[name]
	nth := n.asked[question]
	n.asked[question]++
	n.mu.Unlock()
	if !exists {
		m.RCode = dnsmessage.RCodeNameError
	}
	if len(answers) == 0 {
		return
	}
	if answers[min(nth, len(answers)-1)] == broken {
		m.RCode = dnsmessage.RCodeServerFailure
		return
	}
	for text := range strings.FieldsSeq(answers[min(nth, len(answers)-1)]) {
		addr := netip.MustParseAddr(text)
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, Type: question.Type}
		switch {
		case addr.Is4() && question.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers,
				dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && question.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers,
				dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
}
