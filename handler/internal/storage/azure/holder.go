package azure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"asynccaller/handler/internal/plain/text"
)

// maxHolder limits the name of who holds a token.
const maxHolder = 128

// holder is who holds the latest token of a credential.
type holder struct{ name atomic.Value }

func (h *holder) String() string {
	name, _ := h.name.Load().(string)
	return name
}

// of returns credentials that note who holds their tokens.
func (h *holder) of(credential credentialFor) credentialFor {
	return func(id Identity) (azcore.TokenCredential, error) {
		of, err := credential(id)
		return heldCredential{of, h}, err
	}
}

type heldCredential struct {
	azcore.TokenCredential
	holder *holder
}

// GetToken implements [azcore.TokenCredential].
func (c heldCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err == nil {
		c.holder.name.Store(holderOf(token.Token))
	}
	return token, err
}

// holderOf returns the name of the user of a token of Microsoft Entra, else the object id of the identity, else its
// application; empty if the token does not say it. The signature is not checked: storage does that.
func holderOf(token string) string {
	var claims struct {
		UPN        string `json:"upn"`
		UniqueName string `json:"unique_name"` //nolint:tagliatelle // the token's name
		ObjectID   string `json:"oid"`
		AppID      string `json:"appid"`
	}
	_, payload, _ := strings.Cut(token, ".")
	payload, _, _ = strings.Cut(payload, ".")
	content, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(content, &claims) != nil {
		return ""
	}
	for _, name := range []string{claims.UPN, claims.UniqueName, claims.ObjectID, claims.AppID} {
		if name != "" {
			return text.Line(name, maxHolder)
		}
	}
	return ""
}
