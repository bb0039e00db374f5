package couponmq

import (
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
	"math/big"
	"strings"
	"testing"
	"time"
)

func privatePEM(t *testing.T, private any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestTokensAreSigned(t *testing.T) {
	public, ed, _ := ed25519.GenerateKey(rand.Reader)
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	other, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	secret := []byte("0123456789abcdef0123456789abcdef")
	byEC := func(data, signature []byte) bool {
		sum, r, s := sha256.Sum256(data), new(big.Int), new(big.Int)
		return len(signature) == 64 && ecdsa.Verify(&ec.PublicKey, sum[:],
			r.SetBytes(signature[:32]), s.SetBytes(signature[32:]))
	}
	for _, one := range []struct {
		alg      string
		key      []byte
		verifies func(data, signature []byte) bool
	}{
		{"EdDSA", privatePEM(t, ed), func(data, signature []byte) bool {
			return ed25519.Verify(public, data, signature)
		}},
		{"ES256", privatePEM(t, ec), byEC},
		{"HS256", secret, func(data, signature []byte) bool {
			return hmac.Equal(signature, digest(secret, data))
		}},
	} {
		signer, err := NewTokenSigner(one.key, "2026-11", "https://shop.example")
		if err != nil {
			t.Fatal(one.alg, err)
		}
		token, err := signer.Token(TokenRequest{User: "42", Coupons: []string{"1001"}, Key: "k"})
		if err != nil {
			t.Fatal(one.alg, err)
		}
		parts := strings.Split(token, ".")
		var decoded [3][]byte
		for n, part := range parts {
			if decoded[n], err = base64.RawURLEncoding.DecodeString(part); err != nil {
				t.Fatal(one.alg, err)
			}
		}
		var head struct{ Alg, Kid string }
		var claims struct {
			Iss, Aud, Sub, Key string
			Exp                int64
			Coupons            []string
		}
		if json.Unmarshal(decoded[0], &head) != nil || json.Unmarshal(decoded[1], &claims) != nil {
			t.Fatal(token)
		}
		left := claims.Exp - time.Now().Unix()
		if head.Alg != one.alg || head.Kid != "2026-11" || len(claims.Coupons) != 1 ||
			claims.Sub != "42" || claims.Key != "k" || claims.Aud != "couponmq" ||
			claims.Iss != "https://shop.example" || left < 500 || left > 600 {
			t.Errorf("%s: %+v, %+v", one.alg, head, claims)
		}
		if !one.verifies([]byte(parts[0]+"."+parts[1]), decoded[2]) {
			t.Errorf("%s: the signature is wrong", one.alg)
		}
	}
	for name, key := range map[string][]byte{
		"a short secret": secret[1:], "P-384": privatePEM(t, other), "no key": []byte("-----BEGIN"),
	} {
		if _, err := NewTokenSigner(key, "2026-11", "https://shop.example"); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	signer, _ := NewTokenSigner(secret, "2026-11", "https://shop.example")
	for _, request := range []TokenRequest{
		{User: "42"}, {AllCoupons: true},
		{User: "42", Coupons: []string{"1"}, AllCoupons: true},
		{User: "42", Coupons: make([]string, 65)},
	} {
		if token, err := signer.Token(request); err == nil {
			t.Errorf("%+v: %s", request, token)
		}
	}
}
