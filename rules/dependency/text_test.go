package dependency

import (
	"strings"
	"testing"
)

func TestFew(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a, b": {"a", "b"}, "a, b and 1 more": {"a", "b", "c"}} {
		if got := few(names, 2); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s    string
		most int
		want string
	}{
		{s: "", most: 5},
		{s: "12345", most: 5, want: "12345"},
		{s: "123456", most: 5, want: "12..."},
		{s: "é1234", most: 4, want: "..."}, // half a character is none
		{s: "éé1234", most: 5, want: "é..."},
		{s: "123", most: 2, want: "..."},
		{s: "a\nb\tc\x00d\x7fe", most: 20, want: "a b c d e"},
		{s: "a\xffb", most: 20, want: "a?b"},
		{s: "\xff\xfe\xfd\xfc\xfb", most: 4, want: "..."},
		{s: "\ufffd is a character", most: 6, want: "\ufffd..."},
	} {
		if got := cut(c.s, c.most); got != c.want {
			t.Errorf("%q in %d: got %q, want %q", c.s, c.most, got, c.want)
		}
	}
}

func TestShown(t *testing.T) {
	for s, want := range map[string]string{
		"etcd": "etcd", "": `""`, "a b": `"a b"`, "a\nb": `"a\nb"`, "\u043e": `"\u043e"`,
		strings.Repeat("x", 253): strings.Repeat("x", 253), strings.Repeat("x", 254): `"` + strings.Repeat("x", 253) + `"...`,
	} {
		if got := shown(s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
