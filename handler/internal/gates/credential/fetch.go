package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/targets"
)

// Fetch requests a token, within [Timeout]. [Cause] says what its error means.
type Fetch func(ctx context.Context, c targets.Credential) (Token, error)

// defaultLife is the life of a token whose server does not state it.
const defaultLife = 5 * time.Minute

// ProblemError says why a token request failed. Its text has nothing that the server wrote, except an error code of
// OAuth 2.
type ProblemError struct {
	Text string
	// ByOperator says that the operator has to correct a setting, or a permission.
	ByOperator bool
}

func (p *ProblemError) Error() string { return p.Text }

// Cause says why there is no token of a credential: the problem, and which server has it.
func Cause(c targets.Credential, err error) string {
	text := "the request failed"
	if problem, ok := errors.AsType[*ProblemError](err); ok {
		text = problem.Text
	}
	return fmt.Sprintf("no token: %s (%s)", text, server(c))
}

// server names the server that has the tokens of a credential.
func server(c targets.Credential) string {
	if u, err := url.Parse(c.TokenURL); err == nil && c.Kind == targets.OAuth2 {
		return u.Host
	}
	return "managed identity"
}

// NewFetch returns the function that requests tokens: of managed identities from the platform, and of OAuth 2 through
// the client.
func NewFetch(client *http.Client) Fetch {
	return func(ctx context.Context, c targets.Credential) (Token, error) {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		fetch := fetchIdentity
		if c.Kind == targets.OAuth2 {
			ctx, fetch = context.WithValue(ctx, oauth2.HTTPClient, client), fetchOAuth2
		}
		token, err := fetch(ctx, c)
		switch {
		case err != nil && ctx.Err() != nil:
			return Token{}, &ProblemError{Text: "no answer in time"}
		case err == nil && !isUsable(token.Value):
			return Token{}, errNoToken
		}
		return token, err
	}
}

var errNoToken = &ProblemError{Text: "the answer has no bearer token"}

// isUsable reports whether a token can be sent in a header.
func isUsable(token secret.Text) bool {
	return token != "" && !strings.Contains(string(token), " ") && httpguts.ValidHeaderFieldValue(string(token))
}

// fetchIdentity gets a token of a managed identity. The platform names the address of the identity endpoint, which is
// local, so neither the guard nor the proxy applies.
func fetchIdentity(ctx context.Context, c targets.Credential) (Token, error) {
	options := azidentity.ManagedIdentityCredentialOptions{
		ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}, // the store repeats
	}
	if c.ClientID != "" {
		options.ID = azidentity.ClientID(c.ClientID)
	}
	identity, err := azidentity.NewManagedIdentityCredential(&options)
	if err != nil {
		return Token{}, &ProblemError{Text: "the platform has no such identity", ByOperator: true}
	}
	token, err := identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.Scope}})
	if err != nil {
		return Token{}, identityProblem(err)
	}
	return Token{secret.Text(token.Token), token.ExpiresOn}, nil
}

func identityProblem(err error) *ProblemError {
	failed, isFailed := errors.AsType[*azidentity.AuthenticationFailedError](err)
	switch {
	case isFailed && failed.RawResponse != nil:
		// Both mean that the endpoint is being updated.
		return statusProblem("", failed.RawResponse.StatusCode, http.StatusNotFound, http.StatusGone)
	case isFailed:
		return &ProblemError{Text: "the identity endpoint gives no usable answer"}
	}
	return &ProblemError{Text: "the platform has no such identity", ByOperator: true}
}

func fetchOAuth2(ctx context.Context, c targets.Credential) (Token, error) {
	config := clientcredentials.Config{
		ClientID: c.ClientID, ClientSecret: string(c.Secret), TokenURL: c.TokenURL, Scopes: strings.Fields(c.Scope),
		AuthStyle: oauth2.AuthStyleInHeader, // without a style, a second request follows each failure
	}
	if c.InBody {
		config.AuthStyle = oauth2.AuthStyleInParams
	}
	config.EndpointParams, _ = url.ParseQuery(string(c.Parameters)) // encoded when targets.json was read
	if c.Audience != "" {
		config.EndpointParams.Set("audience", c.Audience)
	}
	token, err := config.Token(ctx)
	if err != nil {
		return Token{}, oauth2Problem(err)
	}
	// Some servers say BearerToken.
	if token.TokenType != "" && !strings.HasPrefix(strings.ToLower(token.TokenType), "bearer") {
		return Token{}, errNoToken
	}
	if token.Expiry.IsZero() {
		token.Expiry = time.Now().Add(defaultLife)
	}
	return Token{secret.Text(token.AccessToken), token.Expiry}, nil
}

// errorCodes are those of RFC 6749, 5.2.
var errorCodes = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
	"invalid_scope",
}

func oauth2Problem(err error) *ProblemError {
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return statusProblem(answer.ErrorCode, answer.Response.StatusCode)
	}
	if sent, ok := errors.AsType[*url.Error](err); ok {
		text, isRefused := outbound.Describe(sent)
		return &ProblemError{Text: text, ByOperator: isRefused}
	}
	return errNoToken
}

// statusProblem describes an answer without a token by its code, if that is one of OAuth 2, and its status. Temporary
// are statuses that end by themselves, besides those that always do. A redirect is not followed.
func statusProblem(code string, status int, temporary ...int) *ProblemError {
	text := fmt.Sprintf("status %d", status)
	if slices.Contains(errorCodes, code) {
		text = code + ", " + text
	}
	temporary = append(temporary, http.StatusRequestTimeout, http.StatusTooManyRequests)
	return &ProblemError{Text: text, ByOperator: status < 500 && !slices.Contains(temporary, status)}
}
