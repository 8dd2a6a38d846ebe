package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"asynccaller/handler/internal/app/config"
)

// proxyLimit is the longest time to connect to a proxy.
const proxyLimit = 3 * time.Second

// proxies checks whether the proxies answer that the environment names. It returns false if storage, at an endpoint,
// cannot be reached because of one.
func (report Reporter) proxies(ctx context.Context, getenv func(string) string, endpoint string) bool {
	either := func(name string) string { return cmp.Or(getenv(name), getenv(strings.ToLower(name))) }
	target, err := url.Parse(endpoint)
	if err != nil {
		return true // the connection has a problem of its own
	}
	environment := httpproxy.Config{
		HTTPProxy: either("HTTP_PROXY"), HTTPSProxy: either("HTTPS_PROXY"), NoProxy: either("NO_PROXY"),
	}
	used, _ := environment.ProxyFunc()(target)
	isReachable := true
	for _, name := range []string{config.Prefix + "PROXY", "HTTPS_PROXY", "HTTP_PROXY"} {
		address := proxyAddress(either(name))
		if address == "" {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, proxyLimit)
		connection, err := new(net.Dialer).DialContext(limited, "tcp", address)
		cancel()
		if err == nil {
			_ = connection.Close()
			report.ok("proxy", fmt.Sprintf("%s: %s accepts connections", name, address))
			continue
		}
		line := Line{
			State: Warning,
			Check: "proxy",
			Text:  fmt.Sprintf("%s: the proxy does not answer: %v", name, err),
			Next:  "start the proxy, or correct or remove the setting: the Functions host can need it",
		}
		forStorage := used != nil && strings.EqualFold(target.Scheme+"_proxy", name)
		switch {
		case forStorage:
			line.State, isReachable = Broken, false
			line.Next = "start the proxy, correct the setting, or name " + target.Hostname() + " in NO_PROXY"
		case strings.HasPrefix(name, config.Prefix):
			line.State = Broken
			line.Next = "start the proxy, or correct the setting: until then no call reaches its target"
		}
		report(line)
	}
	return isReachable
}

// proxyAddress returns the host and the port of a proxy's URL, which may lack its scheme and may have a password. It
// is empty if there is no proxy, or no valid URL.
func proxyAddress(setting string) string {
	if setting != "" && !strings.Contains(setting, "://") {
		setting = "http://" + setting
	}
	proxy, err := url.Parse(setting)
	if err != nil || proxy.Hostname() == "" || setting == "http://none" {
		return ""
	}
	ports := map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}
	return net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), ports[proxy.Scheme], "80"))
}
