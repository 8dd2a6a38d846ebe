package dotnet

import (
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

var (
	number   = regexp.MustCompile(`^[0-9]{1,9}$`)
	tokens   = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+(, ?[A-Za-z0-9!#$%&'*+.^_|~-]+)*$`)
	products = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+(/[A-Za-z0-9!#$%&'*+.^_|~-]+)?( [A-Za-z0-9!#$%&'*+.^_|~-]+(/[A-Za-z0-9!#$%&'*+.^_|~-]+)?)*$`)
)

// parsed lists the headers whose values .NET parses when it reads a message (System.Net.Http, KnownHeaders). One value
// that it cannot parse makes the whole message unreadable. Each function reports values that .NET accepts for certain; nil
// stands for none.
var parsed = map[string]func(value string) bool{
	"Accept": nil, "Accept-Charset": nil, "Accept-Encoding": nil, "Accept-Language": nil,
	"Accept-Ranges": tokens.MatchString, "Age": number.MatchString, "Allow": tokens.MatchString, "Authorization": nil,
	"Cache-Control": nil, "Connection": nil, "Content-Disposition": nil, "Content-Encoding": tokens.MatchString,
	"Content-Language": tokens.MatchString, "Content-Length": number.MatchString, "Content-Location": isURI,
	"Content-Md5": nil, "Content-Range": nil, "Content-Type": isMediaType, "Date": isDate, "Expect": nil, "From": nil,
	"Host": nil, "If-Match": nil, "If-Modified-Since": nil, "If-None-Match": nil, "If-Range": nil,
	"If-Unmodified-Since": nil, "Last-Modified": isDate, "Location": isURI, "Max-Forwards": nil, "Pragma": nil,
	"Proxy-Authenticate": nil, "Proxy-Authorization": nil, "Range": nil, "Referer": nil,
	"Retry-After": func(value string) bool { return number.MatchString(value) || isDate(value) },
	"Server":      products.MatchString, "Te": nil, "Trailer": nil, "Transfer-Encoding": nil, "Upgrade": nil,
	"User-Agent": nil, "Vary": tokens.MatchString, "Via": nil, "Warning": nil, "Www-Authenticate": nil,
}

// Readable returns the headers that .NET accepts for certain when it reads them in a message. .NET refuses a whole
// message if one value does not fit the definition of its header, for example a comma in Server.
func Readable(header http.Header) http.Header {
	readable := make(http.Header, len(header))
	for name, values := range header {
		accepts, isParsed := parsed[name]
		if !isParsed || (accepts != nil && len(values) == 1 && accepts(values[0])) {
			readable[name] = values
		}
	}
	return readable
}

func isDate(value string) bool {
	_, err := http.ParseTime(value)
	return err == nil
}

func isURI(value string) bool {
	_, err := url.Parse(value)
	return err == nil && !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isMediaType(value string) bool {
	mediaType, _, err := mime.ParseMediaType(value)
	return err == nil && strings.Contains(mediaType, "/")
}
