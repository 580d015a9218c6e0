// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"coracle/edge/internal/servicetest"

	"github.com/miekg/dns"
)

const testZone = `
$ORIGIN example.
$TTL 300
@        SOA   ns hostmaster 1 3600 600 86400 60
@        NS    ns
ns       A     10.0.0.1
www      A     10.0.0.5
www      AAAA  fd00::5
alias    CNAME www
far      CNAME www.elsewhere.
nowhere  CNAME missing
loop     CNAME pool
pool     CNAME loop
a.deep   A     10.0.0.6
*.wild   A     10.0.0.7
`

func testHandler(t testing.TB) *handler {
	t.Helper()
	zone, err := parseZone(strings.NewReader(testZone), "test")
	if err != nil {
		t.Fatal(err)
	}
	return &handler{zone: zone}
}

// shown is the records of a section, a word each: owner type value.
func shown(records []dns.RR) string {
	var words []string
	for _, record := range records {
		header := record.Header()
		word := header.Name + " " + dns.TypeToString[header.Rrtype]
		switch value := record.(type) {
		case *dns.A:
			word += " " + value.A.String()
		case *dns.AAAA:
			word += " " + value.AAAA.String()
		case *dns.CNAME:
			word += " " + value.Target
		}
		words = append(words, word)
	}
	return strings.Join(words, "; ")
}

func TestAnswers(t *testing.T) {
	const denied = "example. SOA"
	tests := []struct {
		name   string
		kind   uint16
		rcode  int
		answer string
		ns     string
	}{
		{"www.example.", dns.TypeA, dns.RcodeSuccess, "www.example. A 10.0.0.5", ""},
		{"wWw.EXample.", dns.TypeA, dns.RcodeSuccess, "wWw.EXample. A 10.0.0.5", ""},
		{"www.example.", dns.TypeAAAA, dns.RcodeSuccess, "www.example. AAAA fd00::5", ""},
		{"www.example.", dns.TypeMX, dns.RcodeSuccess, "", denied},
		{"www.example.", dns.TypeANY, dns.RcodeSuccess, "www.example. HINFO", ""},
		{"missing.example.", dns.TypeA, dns.RcodeNameError, "", denied},
		{"missing.example.", dns.TypeANY, dns.RcodeNameError, "", denied},
		{"alias.example.", dns.TypeA, dns.RcodeSuccess, "alias.example. CNAME www.example.; www.example. A 10.0.0.5", ""},
		{"alias.example.", dns.TypeCNAME, dns.RcodeSuccess, "alias.example. CNAME www.example.", ""},
		{"alias.example.", dns.TypeMX, dns.RcodeSuccess, "alias.example. CNAME www.example.", denied},
		{"nowhere.example.", dns.TypeA, dns.RcodeNameError, "nowhere.example. CNAME missing.example.", denied},
		{"far.example.", dns.TypeA, dns.RcodeSuccess, "far.example. CNAME www.elsewhere.", ""},
		{"deep.example.", dns.TypeA, dns.RcodeSuccess, "", denied},
		{"b.deep.example.", dns.TypeA, dns.RcodeNameError, "", denied},
		{"x.wild.example.", dns.TypeA, dns.RcodeSuccess, "x.wild.example. A 10.0.0.7", ""},
		{"x.y.wild.example.", dns.TypeA, dns.RcodeSuccess, "x.y.wild.example. A 10.0.0.7", ""},
		{"x.wild.example.", dns.TypeAAAA, dns.RcodeSuccess, "", denied},
		{"example.", dns.TypeNS, dns.RcodeSuccess, "example. NS", ""},
		{"elsewhere.", dns.TypeA, dns.RcodeRefused, "", ""},
	}
	answers := testHandler(t)
	for _, test := range tests {
		t.Run(test.name+" "+dns.TypeToString[test.kind], func(t *testing.T) {
			answer := answers.answer(new(dns.Msg).SetQuestion(test.name, test.kind))
			if answer.Rcode != test.rcode || shown(answer.Answer) != test.answer || shown(answer.Ns) != test.ns {
				t.Errorf("got %s %q %q, want %s %q %q", dns.RcodeToString[answer.Rcode], shown(answer.Answer), shown(answer.Ns),
					dns.RcodeToString[test.rcode], test.answer, test.ns)
			}
			if answer.Authoritative != (test.rcode != dns.RcodeRefused) {
				t.Errorf("authoritative: %t", answer.Authoritative)
			}
		})
	}
	if answer := answers.answer(new(dns.Msg).SetQuestion("loop.example.", dns.TypeA)); answer.Rcode != dns.RcodeServerFailure {
		t.Errorf("a loop of aliases: got %s", dns.RcodeToString[answer.Rcode])
	}
	chaos := new(dns.Msg).SetQuestion("www.example.", dns.TypeA)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	if answer := answers.answer(chaos); answer.Rcode != dns.RcodeRefused {
		t.Errorf("class CH: got %s", dns.RcodeToString[answer.Rcode])
	}
}

func TestDenialsMayBeKeptForTheMinimum(t *testing.T) {
	answer := testHandler(t).answer(new(dns.Msg).SetQuestion("missing.example.", dns.TypeA))
	if got := answer.Ns[0].Header().Ttl; got != 60 {
		t.Errorf("got %d s, want 60", got)
	}
}

func TestStudyZone(t *testing.T) {
	zone, err := readZone("study.zone")
	if err != nil {
		t.Fatal(err)
	}
	answers := &handler{zone: zone}
	for _, name := range []string{"www.cetic.be.", "cetic.be.", "internship.cetic.be."} {
		answer := answers.answer(new(dns.Msg).SetQuestion(name, dns.TypeA))
		if want := name + " A 10.0.0.5"; shown(answer.Answer) != want || answer.Answer[0].Header().Ttl != 0 {
			t.Errorf("got %v, want %s with TTL 0", answer.Answer, want)
		}
	}
	if answer := answers.answer(new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA)); answer.Rcode != dns.RcodeNameError {
		t.Errorf("another name: got %s", dns.RcodeToString[answer.Rcode])
	}
}

func TestWrongZonesAreRefused(t *testing.T) {
	for what, text := range map[string]string{
		"no SOA":             "www.example. A 10.0.0.5",
		"two SOA":            "example. SOA a b 1 2 3 4 5\nother. SOA a b 1 2 3 4 5",
		"outside":            "example. SOA a b 1 2 3 4 5\nwww.other. A 10.0.0.5",
		"syntax":             "example. SOA a b 1 2 3 4 5\nwww.example. A 10.0.0.256",
		"delegation":         "example. SOA a b 1 2 3 4 5\nsub.example. NS ns.sub.example.",
		"class":              "example. SOA a b 1 2 3 4 5\nwww.example. CH TXT x",
		"beside a CNAME":     "example. SOA a b 1 2 3 4 5\nx.example. CNAME y.example.\nx.example. A 10.0.0.5",
		"two CNAMEs":         "example. SOA a b 1 2 3 4 5\nx.example. CNAME y.example.\nx.example. CNAME z.example.",
		"a file of the host": "example. SOA a b 1 2 3 4 5\n$INCLUDE /etc/hosts",
	} {
		if _, err := parseZone(strings.NewReader("$TTL 0\n"+text), "test"); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := readZone("missing.zone"); err == nil {
		t.Error("a missing file: no error")
	}
}

// serve starts a server and answers its address.
func serve(t *testing.T, answers *handler) string {
	t.Helper()
	return servicetest.Start(t, func(stop context.Context, ready func(net.Addr)) error {
		return run(stop, "127.0.0.1:0", answers, ready)
	})
}

func TestServesUDPAndTCP(t *testing.T) {
	address := serve(t, testHandler(t))
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: 5 * time.Second}
		answer, _, err := client.Exchange(new(dns.Msg).SetQuestion("www.example.", dns.TypeA), address)
		if err != nil || shown(answer.Answer) != "www.example. A 10.0.0.5" {
			t.Errorf("%s: %v %v", network, answer, err)
		}
	}
}

func TestExtensions(t *testing.T) {
	client := dns.Client{Timeout: 5 * time.Second}
	address := serve(t, testHandler(t))
	query := new(dns.Msg).SetQuestion("www.example.", dns.TypeA)
	query.SetEdns0(4096, false)
	answer, _, err := client.Exchange(query, address)
	if err != nil || answer.IsEdns0() == nil || answer.IsEdns0().UDPSize() != udpSize {
		t.Errorf("EDNS: %v %v", answer, err)
	}
	query.IsEdns0().SetVersion(1)
	if answer, _, err = client.Exchange(query, address); err != nil || answer.Rcode != dns.RcodeBadVers {
		t.Errorf("version 1: %v %v", answer, err)
	}
}

func TestLongAnswersAreCutOverUDPOnly(t *testing.T) {
	var text strings.Builder
	text.WriteString("$TTL 0\nexample. SOA a b 1 2 3 4 5\n")
	for range 20 {
		text.WriteString("many.example. TXT " + strings.Repeat("x", 50+text.Len()%100) + "\n")
	}
	zone, err := parseZone(strings.NewReader(text.String()), "test")
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, &handler{zone: zone})
	query := new(dns.Msg).SetQuestion("many.example.", dns.TypeTXT)
	client := dns.Client{Timeout: 5 * time.Second}
	answer, _, err := client.Exchange(query, address)
	if err != nil || !answer.Truncated || answer.Len() > dns.MinMsgSize {
		t.Errorf("UDP: %v %v", answer, err)
	}
	client.Net = "tcp"
	if answer, _, err = client.Exchange(query, address); err != nil || answer.Truncated || len(answer.Answer) != 20 {
		t.Errorf("TCP: %v %v", answer, err)
	}
}

func TestMalformedMessagesLeaveItServing(t *testing.T) {
	address := serve(t, testHandler(t))
	connection, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	// A header that promises a question; a name that points at itself; nothing; a label without its end.
	for _, message := range []string{
		"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00",
		"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01",
		"",
		"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x3fabc",
		"\x00\x01\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		if _, err := connection.Write([]byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	client := dns.Client{Timeout: 5 * time.Second}
	if _, _, err := client.Exchange(new(dns.Msg).SetQuestion("www.example.", dns.TypeA), address); err != nil {
		t.Error(err)
	}
}

// FuzzAnswer gives the handler whatever the library takes for a query: it always has an answer that can be sent.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"www.example.", "x.wild.example.", ".", `a\.b.example.`} {
		bytes, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	answers := testHandler(f)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		query := new(dns.Msg)
		if query.Unpack(bytes) != nil {
			t.Skip()
		}
		answer := answers.answer(query)
		answer.Truncate(room(query))
		if _, err := answer.Pack(); err != nil {
			t.Errorf("%v: %v", query, err)
		}
	})
}
