package doctor

import (
	"maps"
	"slices"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/rules/targets"
)

// certificates says until when the client certificates of targets.json are valid, and warns of those that end soon.
func (report Reporter) certificates(profiles targets.Profiles) {
	certificates := profiles.Certificates()
	for _, pattern := range slices.Sorted(maps.Keys(certificates)) {
		of := certificates[pattern]
		c := account.ClientCertificate{Pattern: pattern, Certificate: of.Name, Subject: of.Subject, Ends: of.Ends}
		line := Line{State: OK, Check: "certificate", Text: pattern + ": " + c.Text()}
		if warning := c.Warning(time.Now()); warning != "" {
			line.State, line.Text = Warning, line.Text+" "+warning
			line.Next = "put a new one into the setting or the Key Vault that it refers to, and restart the app"
		}
		report(line)
	}
}
