package inspect

import (
	"cmp"
	"strings"
	"unicode"

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
	return problem.Error() + "; the text is an envelope: requeue --fix-encoding fixes it"
}

// whyUnrecorded returns the reason for an envelope that carries none.
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
	// With a callback, the handler reports to the sender and does not use giveUp.
	if e.Callback == nil && cmp.Or(e.GiveUp, giveUp) == envelope.GiveUpFault {
		detail = faulted
	}
	if e.GiveUpAt(r.Decision.Expiration).Before(m.InsertedAt) {
		detail += tooLate
	}
	return HostGaveUp, detail
}

const cutMark = "…"

// shown returns the text in one printable line of at most limit bytes. It does not share memory with the text, which may be
// a small part of a large message.
func shown(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
	if len(text) <= limit {
		return strings.Clone(text)
	}
	text, _ = clip(text, limit-len(cutMark))
	return text + cutMark
}
