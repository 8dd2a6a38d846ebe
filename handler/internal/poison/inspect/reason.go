package inspect

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
)

const (
	gaveUp  = "no failure was recorded: the handler crashed, timed out or could not reach storage"
	faulted = "giveUp is fault: the handler answered 500 on purpose, or it crashed or timed out"
	tooLate = "; the deadline had passed"
)

func whyUndecodable(problem error, e *envelope.Envelope) string {
	if e == nil {
		return problem.Error()
	}
	return problem.Error() + "; the text is an envelope: requeue --fix-encoding mends it"
}

// whyUnrecorded finds the reason why an envelope is here that does not say.
func (r Rules) whyUnrecorded(in decision.Intake, m queue.Message) (reason, detail string) {
	if in.Malformed != nil { // the handler left an envelope that is too large as it came
		return Malformed, in.Malformed.Error()
	}
	e := in.Envelope
	giveUp := r.Decision.GiveUp
	if in.Policy.GiveUp == envelope.GiveUpFault {
		giveUp = envelope.GiveUpFault
	}
	detail = gaveUp
	// Where somebody waits for a callback he is told, and giveUp does not count.
	if e.Callback == nil && cmp.Or(e.GiveUp, giveUp) == envelope.GiveUpFault {
		detail = faulted
	}
	if e.GiveUpAt(r.Decision.Expiration).Before(m.InsertedAt) {
		detail += tooLate
	}
	return HostGaveUp, detail
}

const cutMark = "…"

// shown is as much of a text as may be printed: at most limit bytes, the mark of the cut included, and
// nothing that does more to a terminal than be read. It shares no memory with the text, because that may be
// a small part of a large message.
func shown(text string, limit int) string {
	var b strings.Builder
	room := 0 // how much is kept when the text turns out to be too long
	for _, r := range text {
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return b.String()[:room] + cutMark
		}
		b.WriteRune(r)
		if b.Len() <= limit-len(cutMark) {
			room = b.Len()
		}
	}
	return b.String()
}
