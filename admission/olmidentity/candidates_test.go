package olmidentity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
)

func TestUserIs(t *testing.T) {
	masterGroup := []string{masters, "system:authenticated"}
	for name, test := range map[string]struct {
		group  string
		user   authenticationv1.UserInfo
		is     bool
		reason Reason
	}{
		"by its name": {user: authenticationv1.UserInfo{Username: "system:admin", UID: "any"}, is: true},
		"by the group": {group: masters,
			user: authenticationv1.UserInfo{Username: "system:admin", Groups: masterGroup}, is: true},
		"the name alone": {group: masters, user: authenticationv1.UserInfo{Username: "system:admin"},
			reason: RightsMissing},
		"the group alone":          {group: masters, user: authenticationv1.UserInfo{Username: "kube-admin", Groups: masterGroup}},
		"an account of that name":  {user: authenticationv1.UserInfo{Username: "system:serviceaccount:system:admin"}},
		"the account that OLM was": {user: authenticationv1.UserInfo{Username: account.Username()}},
	} {
		t.Run(name, func(t *testing.T) {
			identity := New(Account{User: "system:admin"})
			identity.Set(State{Reason: Trusted, Group: test.group})
			if got := identity.Is(&test.user); got != test.is {
				t.Errorf("Is is %v", got)
			}
			if untrusted, _ := identity.Untrusted(&test.user); untrusted.Reason != test.reason {
				t.Errorf("Doubt is %+v", untrusted)
			}
		})
	}
}

func TestCandidates(t *testing.T) { synctest.Test(t, candidates) }

func candidates(t *testing.T) {
	var lines []string
	registry := prometheus.NewPedanticRegistry()
	c := NewCandidates(account, registry, funcr.New(func(_, line string) { lines = append(lines, line) },
		funcr.Options{}))
	for user, possible := range map[string]bool{"system:admin": true, account.Username(): false,
		"alice@example.com": false, "system:serviceaccount:lifecycle:olm": true} {
		if c.Possible(user) != possible {
			t.Errorf("%s: possible is %v", user, !possible)
		}
	}

	asked := 0
	entitled := func(groups ...string) bool {
		return c.Entitled(&authenticationv1.UserInfo{Username: "system:admin", Groups: groups}, func() (bool, error) {
			asked++
			return len(groups) > 0, nil
		})
	}
	for range 3 {
		if !entitled("a") || entitled() {
			t.Error("rights are mixed up")
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want once for each set of groups", asked)
	}
	time.Sleep(answerLifetime + 1)
	if entitled("a"); asked != 3 {
		t.Error("an answer does not expire")
	}
	if c.Entitled(&authenticationv1.UserInfo{Username: "other"},
		func() (bool, error) { return true, errors.New("no answer") }) {
		t.Error("without an answer a user is entitled")
	}

	if c.Note() != "" {
		t.Errorf("note is %q", c.Note())
	}
	for i := range 3 * maxCandidates {
		for range 2 {
			c.Wrote(fmt.Sprintf("user-%d", i), "installplan", "installplan shop/x")
		}
	}
	if len(lines) != maxCandidates || !strings.Contains(lines[0], "olm.identity=user-0") {
		t.Errorf("logged %d lines: %s", len(lines), lines)
	}
	if note := c.Note(); !strings.HasPrefix(note, "user-0, user-1, user-2, user-3 wrote as OLM does") {
		t.Errorf("note is %q", note)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		samples[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
	}
	if len(samples) != maxCandidates+1 || samples["user-0 installplan"] != 2 ||
		samples["other installplan"] != 2*(3*maxCandidates-maxCandidates) {
		t.Errorf("samples are %v", samples)
	}
}
