package couponmq

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"time"
)

// TokenSigner signs user tokens: what a shop's server gives to a user, whose browser then asks the
// gateway. Its members may be changed before the first token.
type TokenSigner struct {
	Issuer   string
	Audience string        // couponmq
	Life     time.Duration // 10 minutes
	kid, alg string
	sign     func(data []byte) ([]byte, error)
}

// TokenRequest says what a token is for.
type TokenRequest struct {
	User string
	// Coupons: only these, 1 to 64. AllCoupons: no such limit, where Coupons is empty.
	Coupons    []string
	AllCoupons bool
	// Key: the idempotency key that each of its requests must have, so that a stolen token gives no
	// further coupon.
	Key string
}

// NewTokenSigner signs by ES256 or EdDSA with a private key in PEM (PKCS #8), or by HS256 with a
// secret of 32 bytes or more. kid: the name of the key in COUPON_TOKEN_KEYS.
func NewTokenSigner(key []byte, kid, issuer string) (*TokenSigner, error) {
	s := &TokenSigner{Issuer: issuer, Audience: "couponmq", Life: 10 * time.Minute, kid: kid}
	block, _ := pem.Decode(key)
	if block == nil {
		if len(key) < 32 || bytes.Contains(key, []byte("-----BEGIN")) {
			return nil, invalid("the key is neither PEM nor a secret of 32 bytes or more")
		}
		secret := append([]byte(nil), key...)
		s.alg = "HS256"
		s.sign = func(data []byte) ([]byte, error) { return digest(secret, data), nil }
		return s, nil
	}
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, invalid("the private key cannot be read: %v", err)
	}
	switch private := private.(type) {
	case ed25519.PrivateKey:
		s.alg = "EdDSA"
		s.sign = func(data []byte) ([]byte, error) { return ed25519.Sign(private, data), nil }
		return s, nil
	case *ecdsa.PrivateKey:
		if private.Curve == elliptic.P256() {
			s.alg = "ES256"
			s.sign = func(data []byte) ([]byte, error) { return signES256(private, data) }
			return s, nil
		}
	}
	return nil, invalid("the private key is neither of P-256 nor of Ed25519")
}

func signES256(private *ecdsa.PrivateKey, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
	if err != nil {
		return nil, err
	}
	both := make([]byte, 64)
	r.FillBytes(both[:32])
	s.FillBytes(both[32:])
	return both, nil
}

func digest(key, data []byte) []byte {
	by := hmac.New(sha256.New, key)
	by.Write(data)
	return by.Sum(nil)
}

// Token makes a token.
func (s *TokenSigner) Token(request TokenRequest) (string, error) {
	count := len(request.Coupons)
	if request.User == "" || count > 64 || request.AllCoupons != (count == 0) {
		return "", invalid("a token is for a User, and for 1 to 64 Coupons or AllCoupons")
	}
	head := map[string]string{"alg": s.alg, "kid": s.kid}
	claims := map[string]any{"iss": s.Issuer, "aud": s.Audience, "sub": request.User}
	claims["exp"] = time.Now().Add(s.Life).Unix()
	if !request.AllCoupons {
		claims["coupons"] = request.Coupons
	}
	if request.Key != "" {
		claims["key"] = request.Key
	}
	signed := base64JSON(head) + "." + base64JSON(claims)
	signature, err := s.sign([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

func base64JSON(value any) string {
	text, _ := json.Marshal(value) // texts and a number: it cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}
