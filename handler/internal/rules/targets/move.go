package targets

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// DowngradeRefusal is why a call is not made that would move from https to http.
const DowngradeRefusal = "targets.json moves it from https to http"

// Move returns the URL that is called in the place of a target: that at the host to which its profile moves it, with
// its path, query and user info, or itself.
func (p Profiles) Move(target *url.URL) *url.URL {
	to := p.find(name(target), Address(target)).To
	if to == nil {
		return target
	}
	moved := *target
	moved.Scheme, moved.Host = to.Scheme, to.Host
	return &moved
}

// Moved returns a call as it is made at another host, or nil if its target has not moved. A Host header that names the
// host of the target is not for another one. The refusal says why the call must not be made; it is empty if it may.
func (p Profiles) Moved(call envelope.Call) (moved *envelope.Call, refusal string) {
	from, to := call.Target, p.Move(call.Target)
	if to == from {
		return nil, ""
	}
	call.Target, call.URL = to, to.String()
	if call.Host != "" && Address(from) == Address(&url.URL{Scheme: from.Scheme, Host: call.Host}) {
		call.Host = ""
	}
	if from.Scheme == "https" && to.Scheme == "http" {
		refusal = DowngradeRefusal
	}
	return &call, refusal
}

// Moves returns the URLs to which hosts are moved, by their patterns in the form of [Profiles.Patterns].
func (p Profiles) Moves() map[string]*url.URL {
	moves := map[string]*url.URL{}
	for key, profile := range p.entries {
		if profile.To != nil {
			moves[patternOf(key)] = profile.To
		}
	}
	return moves
}

// setTo reads the scheme, the host and the port to which the calls for a host are made.
func (p *Profile) setTo(value json.RawMessage) error {
	text, err := strictjson.String(value)
	if err != nil {
		return err
	}
	u, err := envelope.ParseURL(text)
	if err != nil {
		return err
	}
	bare := url.URL{Scheme: u.Scheme, Host: u.Host}
	if bare.String() != strings.TrimSuffix(u.String(), "/") || strings.HasSuffix(text, "?") {
		return errors.New("want a scheme, a host and perhaps a port, such as https://new.example.com: path, query " +
			"and user info are those of the call")
	}
	p.To = &bare
	return nil
}

// checkTo returns the problem of a profile that moves calls with its pattern, of which key is the key in [Profiles],
// and with its number of members.
func (p *Profile) checkTo(key string, members int) error {
	var problem string
	switch {
	case p.To == nil:
		return nil
	case members > 1:
		problem = "takes the place of the other members: those of the new host apply"
	case key == star || strings.HasPrefix(key, "."):
		problem = "is for one host: * and *.suffix name many"
	case p.To.Scheme == "http" && (p.Scope == "" || strings.HasSuffix(p.Scope, ":443")):
		problem = "leads from https to http: want https, or the port in the pattern if its calls are made by http"
	default:
		return nil
	}
	return strictjson.In("to", errors.New(problem))
}

// checkMoves returns the problems of profiles that move calls to each other.
func (p Profiles) checkMoves() (problems []error) {
	for key, profile := range p.entries {
		if profile.To == nil {
			continue
		}
		next := p.find(name(profile.To), Address(profile.To))
		switch {
		case next.To == nil:
		case next.Pattern == profile.Pattern:
			problems = append(problems, fmt.Errorf("%.300q: to: leads to itself", profile.Pattern))
		default:
			problems = append(problems, fmt.Errorf("%.300q: to: %s is moved itself, by the pattern %.300q: name its "+
				"new host", p.entries[key].Pattern, Host(profile.To), next.Pattern))
		}
	}
	return problems
}
