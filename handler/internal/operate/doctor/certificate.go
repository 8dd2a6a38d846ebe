package doctor

import (
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/rules/targets"
)

// certificates says until when the client certificates of targets.json are valid, and warns of those that end soon.
func (report Reporter) certificates(profiles targets.Profiles) {
	for _, c := range account.ClientCertificates(profiles) {
		line := Line{State: OK, Check: "certificate", Text: c.Pattern + ": " + c.Text()}
		if warning := c.Warning(time.Now()); warning != "" {
			line.State, line.Text = Warning, line.Text+" "+warning
			line.Next = "put a new one into the setting or the Key Vault that it refers to, and restart the app"
		}
		report(line)
	}
}
