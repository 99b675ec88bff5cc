package cli

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	"github.com/krait-ml/krait/internal/webpage"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/lab/traffic"
)

// trafficStyle is the style of a page of traffic. Charts are drawn for light pages.
const trafficStyle = `:root{color-scheme:light dark}
body{margin:2rem auto;max-width:96rem;padding:0 1rem;font:14px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;background:#f7f7f5;color:#1b1d21}
h1{font-size:20px;margin:0}h2{font-size:16px;margin:1.6rem 0 .4rem}p{margin:.2rem 0}
.muted{color:#60646c}.panel{background:#fff;border:1px solid #e2e2de;border-radius:8px;padding:.8rem;overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{padding:.2rem .5rem;text-align:right;white-space:nowrap}
th{font-weight:600;color:#60646c;white-space:normal;vertical-align:bottom}td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}tr+tr td{border-top:1px solid #e2e2de}
tr.found td{background:#e2f5e9;font-weight:600}.chart svg{max-width:100%;height:auto}
@media(max-width:60rem){table,tbody,tr,td{display:block}tr:first-child{display:none}tr+tr{padding:.5rem 0}tr+tr+tr{border-top:1px solid #e2e2de}.chart svg{max-width:none}
td,tr td:nth-child(-n+2){white-space:normal;text-align:right;padding:.1rem 0}tr+tr td{border:0}td::before{content:attr(data-name);float:left;color:#60646c}}
@media(prefers-color-scheme:dark){body{background:#0f1114;color:#e9eaec}.muted,th{color:#9aa0aa}
.panel{background:#17191d;border-color:#2b2e34}.chart{background:#171717}tr+tr+tr,tr+tr td{border-color:#2b2e34}td::before{color:#9aa0aa}tr.found td{background:#12301f}
.chart svg{filter:invert(.91) hue-rotate(180deg)}}`

// page writes the report as one HTML page without scripts: a chart, what was found, and a table of
// deployments.
func (r *trafficReport) page() []byte {
	var b bytes.Buffer
	title := html.EscapeString(r.Model + ": predicted traffic")
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src %s\">\n"+
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n<h1>%[2]s</h1>\n", webpage.Hash(trafficStyle), title, trafficStyle)
	fmt.Fprintf(&b, "<p class=\"muted\">%s; %s per load, simulated</p>\n", html.EscapeString(r.about), count(r.Requests, "request"))
	svg := traffic.SVG("", r.Lines)
	if i := bytes.Index(svg, []byte("<svg")); i > 0 {
		svg = svg[i:]
	}
	fmt.Fprintf(&b, "<h2>Throughput over speed</h2>\n<div class=\"panel chart\">%s</div>\n<h2>Deployments</h2>\n<div class=\"panel\"><table>\n<tr>", svg)
	for _, name := range r.columns() {
		fmt.Fprintf(&b, "<th>%s</th>", html.EscapeString(name))
	}
	b.WriteString("</tr>\n")
	for i := range r.Lines {
		r.rows(&b, &r.Lines[i])
	}
	b.WriteString("</table></div>\n")
	var end strings.Builder
	r.printEnd(&end)
	if text := strings.TrimSpace(end.String()); text != "" {
		fmt.Fprintf(&b, "<h2>Summary</h2>\n<pre class=\"panel\">%s</pre>\n", html.EscapeString(text))
	}
	b.WriteString("<p class=\"muted\">TTFT, TPOT and E2E are of requests that were answered")
	if r.slo != "" {
		fmt.Fprintf(&b, "; good is the share of all requests within %s", html.EscapeString(r.slo))
	}
	b.WriteString(".</p>\n</body>\n</html>\n")
	return b.Bytes()
}

// columns are the names of the table's.
func (r *trafficReport) columns() []string {
	names := []string{"servers", "load", "GPUs", "ok", "failed", "TTFT p50, ms", "TTFT p95", "TTFT p99", "TPOT p50, ms", "TPOT p95", "TPOT p99", "E2E p95, s", "tokens/s per rank", "busy"}
	if r.slo != "" {
		names = append(names, "good")
	}
	if r.price > 0 {
		names = append(names, "price of 1M tokens")
	}
	return names
}

// rows writes a deployment's rows of the table.
func (r *trafficReport) rows(b *bytes.Buffer, x *traffic.Line) {
	if x.Err != "" {
		fmt.Fprintf(b, "<tr><td>%s</td><td colspan=\"%d\">%s</td></tr>\n", html.EscapeString(x.Name), len(r.columns())-1, html.EscapeString(x.Err))
	}
	for i, l := range x.Loads {
		cells := []string{x.Name, l.Name(), fmt.Sprint(x.Ranks()), fmt.Sprint(l.OK), fmt.Sprint(l.Failed())}
		for _, t := range []*load.Times{l.TTFT, l.TPOT} {
			cells = append(cells, strings.Fields(milliseconds(t, 1))...)
		}
		latency := "–"
		if l.Latency != nil {
			latency = fmt.Sprintf("%.2f", l.Latency.P95)
		}
		cells = append(cells, latency, fmt.Sprintf("%.1f", l.PerRank), fmt.Sprintf("%.1f%%", 100*busiest(l)))
		if r.slo != "" {
			cells = append(cells, fmt.Sprintf("%.1f%%", 100*float64(l.Good)/float64(r.Requests)))
		}
		if r.price > 0 {
			price := "–"
			if i < len(x.PerMillion) {
				price = fmt.Sprintf("%.4g", x.PerMillion[i])
			}
			cells = append(cells, price)
		}
		class := ""
		if x.Name == r.Found {
			class = " class=\"found\""
		}
		fmt.Fprintf(b, "<tr%s>", class)
		for j, cell := range cells {
			fmt.Fprintf(b, "<td data-name=\"%s\">%s</td>", html.EscapeString(r.columns()[j]), html.EscapeString(cell))
		}
		b.WriteString("</tr>\n")
	}
}
