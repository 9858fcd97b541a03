package text

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const (
	rightToLeft = "\u202e"
	lookAlike   = "\u043e" // Cyrillic o
	wide        = "尺"
	megabytes   = 4 << 20
)

func TestQuote(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{name: "empty", in: "", want: `""`},
		{name: "plain", in: "etcd", want: `"etcd"`},
		{name: "quotes", in: `a"b\c`, want: `"a\"b\\c"`},
		{name: "line break", in: "a\nb", want: `"a\nb"`},
		{name: "invalid UTF-8", in: "a\xff", want: `"a\xff"`},
		{name: "longest", in: strings.Repeat("x", 120), want: `"` + strings.Repeat("x", 120) + `"`},
		{name: "too long", in: strings.Repeat("x", megabytes), want: `"` + strings.Repeat("x", 120) + `"...`},
		{name: "cut in a wide rune", in: strings.Repeat("x", 119) + wide,
			want: `"` + strings.Repeat("x", 119) + `"...`},
		{name: "continuation bytes only", in: strings.Repeat("\x80", megabytes),
			want: `"` + strings.Repeat(`\x80`, 116) + `"...`},
	} {
		if got := Quote(c.in); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestName(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{name: "plain", in: "etcd.v0.9.4", want: "etcd.v0.9.4"},
		{name: "empty", in: "", want: `""`},
		{name: "space", in: "a b", want: `"a b"`},
		{name: "line break", in: "a\nb", want: `"a\nb"`},
		{name: "look-alike", in: lookAlike, want: `"` + lookAlike + `"`},
		{name: "longest", in: strings.Repeat("x", 253), want: strings.Repeat("x", 253)},
		{name: "too long", in: strings.Repeat("x", 254), want: `"` + strings.Repeat("x", 120) + `"...`},
	} {
		if got := Name(c.in); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{name: "empty", in: "", want: ""},
		{name: "plain", in: `it's "a\b"`, want: `it's "a\b"`},
		{name: "line break", in: "a\r\nb\tc", want: `a\r\nb\tc`},
		{name: "zero byte", in: "a\x00b", want: `a\x00b`},
		{name: "ANSI", in: "\x1b[2J\x7f", want: `\x1b[2J\x7f`},
		{name: "invalid UTF-8", in: "a\xff\xc3b", want: `a\xff\xc3b`},
		{name: "megabytes", in: strings.Repeat("\n", megabytes), want: strings.Repeat(`\n`, megabytes)},
	} {
		if got := Escape(c.in); got != c.want {
			t.Errorf("%s: got %.80s, want %.80s", c.name, got, c.want)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		name        string
		parts       []string
		most        int
		join, names string
	}{
		{name: "none", most: 2},
		{name: "one", parts: []string{"a"}, most: 2, join: "a", names: "a"},
		{name: "all", parts: []string{"a", "b"}, most: 2, join: "a, b", names: "a, b"},
		{name: "more", parts: []string{"a", "b", "c"}, most: 2, join: "a, b and 1 more", names: "a, b and 1 more"},
		{name: "spaces", parts: []string{"a b", ""}, most: 2, join: "a b, ", names: `"a b", ""`},
		{name: "a forged list", parts: []string{"a\x1b, b and 7 more"}, most: 2, join: `a\x1b, b and 7 more`,
			names: `"a\x1b, b and 7 more"`},
		{name: "megabytes", parts: make([]string, megabytes), most: 1, join: " and 4194303 more",
			names: `"" and 4194303 more`},
	} {
		if got := Join(c.parts, c.most); got != c.join {
			t.Errorf("%s: Join: got %s, want %s", c.name, got, c.join)
		}
		if got := Names(c.parts, c.most); got != c.names {
			t.Errorf("%s: Names: got %s, want %s", c.name, got, c.names)
		}
	}
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		name, in string
		most     int
		want     string
	}{
		{name: "empty", most: 5},
		{name: "fits", in: "12345", most: 5, want: "12345"},
		{name: "too long", in: "123456", most: 5, want: "12..."},
		{name: "no half rune", in: "é1234", most: 4, want: "..."},
		{name: "whole rune", in: "éé1234", most: 5, want: "é..."},
		{name: "wide rune", in: strings.Repeat(wide, 4), most: 11, want: strings.Repeat(wide, 2) + "..."},
		{name: "shorter than the dots", in: "123", most: 2, want: "..."},
		{name: "control characters", in: "a\nb\tc\x00d\x7fe", most: 20, want: "a b c d e"},
		{name: "a rule of several lines", in: "  a &&  \r\n\n    b\n", most: 20, want: "  a && b"},
		{name: "line breaks around", in: "\n\n a \n", most: 20, want: "a"},
		{name: "other white space", in: "a\u2028b\u00a0c\u3000d", most: 20, want: "a b c d"},
		{name: "ANSI", in: "\x1b[31mAllow\u009b0m", most: 20, want: "[31mAllow 0m"},
		{name: "bidi override", in: "etcd" + rightToLeft + "gnp", most: 20, want: `etcd\u202egnp`},
		{name: "no half escape", in: rightToLeft + rightToLeft, most: 11, want: `\u202e...`},
		{name: "letters of any script", in: lookAlike + wide + "ü", most: 20, want: lookAlike + wide + "ü"},
		{name: "invalid UTF-8", in: "a\xffb", most: 20, want: "a?b"},
		{name: "invalid UTF-8, too long", in: "\xff\xfe\xfd\xfc\xfb", most: 4, want: "?..."},
		{name: "U+FFFD", in: "\ufffd is a character", most: 6, want: "\ufffd..."},
		{name: "megabytes", in: strings.Repeat("x", megabytes), most: 10, want: "xxxxxxx..."},
		{name: "megabytes of line breaks", in: strings.Repeat("\n", megabytes) + "x", most: 10, want: "x"},
	} {
		if got := Truncate(c.in, c.most); got != c.want {
			t.Errorf("%s: got %.80q, want %q", c.name, got, c.want)
		}
	}
	if got, want := TruncateSuffix("1234567890", 9, " [cut]"), "123 [cut]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestClasses goes through the characters of the planes that have letters or formats: those that control a terminal, or the direction or the lines of text, are
// escaped wherever they are shown, and no other is.
func TestClasses(t *testing.T) {
	for i := range 3 << 16 {
		r := rune(i)
		if r >= 2<<16 {
			r += 0xc0000 // plane 14
		}
		s := "ü" + string(r) + "ü"
		want := s
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			want = "ü" + strings.Trim(strconv.QuoteRuneToASCII(r), "'") + "ü"
		}
		if got := Escape(s); got != want {
			t.Errorf("%U: Escape returns %q, want %q", r, got, want)
		}
		if got := Quote(s); got != Name(s) || got != `"`+want+`"` && r != '"' && r != '\\' {
			t.Errorf("%U: Quote returns %s, want %q", r, got, want)
		}
		if got := Truncate(s, 20); got != want && (got != "ü ü" || !breaks(r)) {
			t.Errorf("%U: Truncate returns %q, want %q", r, got, want)
		}
		encoded, err := json.Marshal(s)
		var decoded string
		if shown := JSON(encoded); err != nil || strings.ContainsFunc(string(shown), hidden) ||
			want != s && (json.Unmarshal(shown, &decoded) != nil || decoded != s) {
			t.Errorf("%U: JSON returns %s", r, shown)
		}
	}
}

// FuzzText checks what holds for any text.
func FuzzText(f *testing.F) {
	f.Add("short", uint16(6))
	f.Add(strings.Repeat("ü", 30), uint16(27))
	f.Add("\xff\xfe\x80 broken "+strings.Repeat("€", 20), uint16(16))
	f.Add("  a\n \x1b[2J"+rightToLeft+" \x00", uint16(12))
	f.Fuzz(func(t *testing.T, s string, more uint16) {
		most := len(dots) + int(more)
		got := Truncate(s, most)
		if len(got) > most || !utf8.ValidString(got) || strings.ContainsFunc(got, hidden) {
			t.Errorf("%q in %d bytes: %q", s, most, got)
		}
		if again := Truncate(got, most); again != got {
			t.Errorf("%q in %d bytes, twice: %q, then %q", s, most, got, again)
		}
		for name, got := range map[string]string{"Quote": Quote(s), "Name": Name(s), "Escape": Escape(s),
			"Join": Join([]string{s}, 1)} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, hidden) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if again := Escape(Escape(s)); again != Escape(s) {
			t.Errorf("escaped twice: %q", again)
		}
	})
}
