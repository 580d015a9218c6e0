// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"

	"github.com/miekg/dns"
)

// udpSize is the largest answer sent over UDP: what passes everywhere without fragments (DNS flag day 2020).
const udpSize = 1232

// handler answers queries. What is no query never gets here: the library drops answers, and refuses malformed messages
// with FORMERR and other operations with NOTIMP.
type handler struct {
	zone *zone
	// queries gets a line for each query, if there is one. The study's server had that always, and collapsed under it.
	queries *slog.Logger
}

// ServeDNS sends the answer to one query.
func (h *handler) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	answer := h.answer(query)
	if w.LocalAddr().Network() == "udp" {
		answer.Truncate(room(query))
	}
	if h.queries != nil && len(query.Question) == 1 {
		question := query.Question[0]
		h.queries.Info("query", "id", query.Id, "from", w.RemoteAddr().String(), "name", question.Name,
			"type", dns.TypeToString[question.Qtype], "rcode", dns.RcodeToString[answer.Rcode])
	}
	if err := w.WriteMsg(answer); err != nil {
		slog.Warn("answer not sent", "to", w.RemoteAddr().String(), "error", err)
	}
}

// room is how long an answer over UDP may be: what the client says (RFC 6891, 6.2.3), within bounds.
func room(query *dns.Msg) int {
	if option := query.IsEdns0(); option != nil {
		return min(max(int(option.UDPSize()), dns.MinMsgSize), udpSize)
	}
	return dns.MinMsgSize
}

// answer makes the answer to a query.
func (h *handler) answer(query *dns.Msg) *dns.Msg {
	answer := new(dns.Msg).SetReply(query)
	if len(query.Question) != 1 {
		// The library sees to what the header says; a message may end before its question.
		answer.Rcode = dns.RcodeFormatError
		return answer
	}
	if option := query.IsEdns0(); option != nil {
		answer.SetEdns0(udpSize, false)
		if option.Version() != 0 {
			answer.Rcode = dns.RcodeBadVers
			return answer
		}
	}
	question := query.Question[0]
	name := key(question.Name)
	if question.Qclass != dns.ClassINET || !dns.IsSubDomain(h.zone.origin, name) {
		answer.Rcode = dns.RcodeRefused
		return answer
	}
	answer.Authoritative = true
	// The first record has the name as the client wrote it, which some use against forged answers.
	for shown, chain := question.Name, 0; ; chain++ {
		at := h.zone.find(name)
		alias := at[dns.TypeCNAME]
		if len(alias) == 0 || question.Qtype == dns.TypeCNAME {
			answer.Answer = append(answer.Answer, as(shown, at.of(question.Qtype, shown))...)
			if at == nil {
				// That of the last name of a chain (RFC 6604, 3).
				answer.Rcode = dns.RcodeNameError
			}
			break
		}
		answer.Answer = append(answer.Answer, as(shown, alias)...)
		shown = alias[0].(*dns.CNAME).Target
		name = key(shown)
		if chain == maxChain {
			answer.Rcode = dns.RcodeServerFailure
			return answer
		}
		if !dns.IsSubDomain(h.zone.origin, name) {
			return answer
		}
	}
	if last := len(answer.Answer) - 1; last < 0 || answer.Answer[last].Header().Rrtype == dns.TypeCNAME && question.Qtype != dns.TypeCNAME {
		answer.Ns = append(answer.Ns, h.zone.denial())
	}
	return answer
}

// of is what a name has of a type. Asked for everything it has as little as is allowed (RFC 8482, 4.2).
func (at node) of(kind uint16, owner string) []dns.RR {
	if kind == dns.TypeANY && len(at) > 0 {
		header := dns.RR_Header{Name: owner, Rrtype: dns.TypeHINFO, Class: dns.ClassINET}
		return []dns.RR{&dns.HINFO{Hdr: header, Cpu: "RFC8482"}}
	}
	return at[kind]
}

// denial is the SOA record of an answer that denies, with the time for which it may be kept (RFC 2308, 3 and 5).
func (z *zone) denial() dns.RR {
	soa := dns.Copy(z.soa)
	soa.Header().Ttl = min(z.soa.Hdr.Ttl, z.soa.Minttl)
	return soa
}

// as is copies of records with another owner's name: a wildcard's records, or another case.
func as(owner string, records []dns.RR) []dns.RR {
	copies := make([]dns.RR, len(records))
	for i, record := range records {
		copies[i] = dns.Copy(record)
		copies[i].Header().Name = owner
	}
	return copies
}
