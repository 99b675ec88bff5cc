package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session"
	"github.com/spf13/cobra"
)

func newSimulateTransfer() *cobra.Command {
	var f transferFlags
	from := newGraphArg()
	var layer int
	var out output
	c := &cobra.Command{
		Use:   "transfer [flags] [DIR | FILE.ir]",
		Short: "List what moves when another machine continues a sequence",
		Long: `Transfer lists what moves when a model on --to ranks continues a sequence from a model on --from
ranks: for each receiving rank the pieces, the sending rank, and the offsets at both ends.
Nothing moves that a rank does not need, and nothing twice. Of a folder only config.json is
needed.

The states of a sequence are contiguous on each rank, and offsets are relative to their start;
KV rows are in pages of --page tokens, page 0 first. A piece that is part of every row is a
strided copy with one stretch per row. The receiver already has the rows of the first --have of
--tokens tokens. --strategy and --page apply to both machines, or to each as FROM:TO.

Below the lists are the bytes between any two ranks, the total if ranks sent all pages and
states of the sequence, and the total in blocks of one size, as engines send that transfer
opaque blocks. Without DIR it uses the embedded model.`,
		Example: `  krait simulate transfer ~/models/zamba2-1.2b --from 1 --to 4 --tokens 4096
  krait simulate transfer ~/models/bamba-9b --from 2 --to 3 --page 16:48 --states conv=bf16,cache=bf16
  krait simulate transfer --from 4 --to 4 --strategy channel:hoisted --json`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			g, _, err := from.read(c, args)
			if err != nil {
				return err
			}
			r, err := f.report(c, g)
			if err != nil {
				return err
			}
			if block := "layers." + strconv.Itoa(layer); c.Flags().Changed("layer") {
				if err := r.only(block); err != nil {
					return fmt.Errorf("--layer %d: %w", layer, err)
				}
			}
			return out.print(c, r, r.print)
		},
	}
	from.add(c)
	out.add(c)
	f.add(c)
	c.Flags().IntVar(&layer, "layer", 0, "list only the pieces of this layer")
	return c
}

// transferFlags say what two machines are like, and what moves.
type transferFlags struct {
	from, to               int
	strategy, page, states string
	tokens, have           int
}

func (f *transferFlags) add(c *cobra.Command) {
	c.Flags().IntVar(&f.from, "from", 1, "ranks of the sender")
	c.Flags().IntVar(&f.to, "to", 1, "ranks of the receiver")
	c.Flags().StringVar(&f.strategy, "strategy", "channel", "sharding strategy, FROM:TO or one for both")
	c.Flags().StringVar(&f.page, "page", "128", "tokens per KV page, FROM:TO or one for both")
	c.Flags().StringVar(&f.states, "states", "", "formats of states by kind, such as conv=bf16,cache=e4m3 (default f32)")
	c.Flags().IntVar(&f.tokens, "tokens", 512, "tokens of the sequence")
	c.Flags().IntVar(&f.have, "have", 0, "leading tokens whose KV rows the receiver already has")
}

// mostPieces is more than anyone reads.
const mostPieces = 1 << 20

// report lists what moves.
func (f *transferFlags) report(c *cobra.Command, g *graph.Graph) (*transferReport, error) {
	if f.tokens < 1 || f.have < 0 || f.have > f.tokens {
		return nil, fmt.Errorf("--tokens %d and --have %d: --tokens must be at least 1, and --have from 0 to --tokens", f.tokens, f.have)
	}
	pages, err := f.pages()
	if err != nil {
		return nil, err
	}
	strategies := both(f.strategy)
	out := &transferReport{Model: g.Name, Tokens: f.tokens, Have: f.have}
	ends := [2]*endReport{&out.From, &out.To}
	for i, n := range []int{f.from, f.to} {
		if n < 1 {
			return nil, fmt.Errorf("--%s is %d; it must be from 1 to %d", [2]string{"from", "to"}[i], n, passes.MaxRanks)
		}
		*ends[i] = endReport{Ranks: n, Strategy: strategies[i], PageTokens: pages[i]}
		if ends[i].end, err = endOf(c, g, krait.Sharding{Ranks: n, Strategy: strategies[i], States: f.states}, pages[i]); err != nil {
			return nil, err
		}
	}
	if n := f.tokens/pages[0] + f.tokens/pages[1] + 2; n > mostPieces/(len(out.To.end.States.Buffers)*max(f.from, f.to)+1) {
		return nil, fmt.Errorf("--tokens %d in pages of %d and %d: that may be more than %s pieces; give fewer tokens or larger pages", f.tokens, pages[0], pages[1], thousands(mostPieces))
	}
	return interruptible(c, "simulate", func() (*transferReport, error) { return out, out.fill() })
}

// both is what is said of both machines, once or with a colon between them.
func both(text string) [2]string {
	from, to, two := strings.Cut(text, ":")
	if !two {
		to = from
	}
	return [2]string{from, to}
}

func (f *transferFlags) pages() (out [2]int, err error) {
	for i, text := range both(f.page) {
		if out[i], err = strconv.Atoi(text); err != nil || out[i] < 1 || out[i] > state.MaxPageTokens {
			return out, fmt.Errorf("--page is %s; a page must have from 1 to %d tokens, as in 16 or 16:48", f.page, state.MaxPageTokens)
		}
	}
	return out, nil
}

// endOf compiles the model of a machine.
func endOf(c *cobra.Command, g *graph.Graph, s krait.Sharding, page int) (lowering.End, error) {
	compiled, err := compileTo(c, graph.NoStage, g, s)
	if err != nil {
		return lowering.End{}, err
	}
	k, err := interruptible(c, "lower", func() (*lowering.StateLayout, error) {
		all, err := session.Lower(compiled, s, 0, nil)
		if err != nil {
			return nil, err
		}
		return lowering.StateLayoutOf(all)
	})
	return lowering.End{States: k, PageTokens: page}, err
}

// transferReport is what moves.
type transferReport struct {
	Model    string       `json:"model"`
	From     endReport    `json:"from"`
	To       endReport    `json:"to"`
	Tokens   int          `json:"tokens"`
	Have     int          `json:"have_tokens"`
	Ranks    []readReport `json:"ranks"` // that read
	Pairs    []pairReport `json:"pairs"`
	Reads    int          `json:"pieces"`
	Bytes    int64        `json:"bytes"`
	Whole    int64        `json:"whole_bytes"`
	InBlocks blocksReport `json:"in_blocks"`
}

// endReport is one of the two machines.
type endReport struct {
	Ranks      int    `json:"ranks"`
	Strategy   string `json:"strategy"`
	PageTokens int    `json:"page_tokens"`
	end        lowering.End
}

func (e endReport) String() string {
	return fmt.Sprintf("%s (%s, pages of %s)", ranks(e.Ranks), e.Strategy, count(e.PageTokens, "token"))
}

// readReport is what a rank reads.
type readReport struct {
	Bytes int64        `json:"bytes"`
	Count int          `json:"pieces"`
	Reads []namedPiece `json:"reads"`
	of    string       // the only block of which they are; "": all
}

type namedPiece struct {
	State string `json:"state"`
	lowering.Read
}

type pairReport struct {
	From  int   `json:"from"`
	To    int   `json:"to"`
	Reads int   `json:"pieces"`
	Bytes int64 `json:"bytes"`
	Whole int64 `json:"whole_bytes"`
}

// blocksReport is the same between engines that have blocks of one size, and those of a
// rank that sends most.
type blocksReport struct {
	Rank int `json:"rank"`
	lowering.Blocks
	lowering.Request
	Pairs    int   `json:"pairs"`
	AllBytes int64 `json:"all_bytes"`
}

// fill works out what moves.
func (r *transferReport) fill() error {
	t, err := lowering.NewTransfer(r.From.end, r.To.end)
	if err != nil {
		return err
	}
	volumes, reads, err := t.Volumes(r.Tokens, r.Have)
	if err != nil {
		return err
	}
	for rank, list := range reads {
		x := readReport{Count: len(list), Reads: []namedPiece{}}
		for _, p := range list {
			x.Bytes += p.Bytes * int64(p.Count)
			x.Reads = append(x.Reads, namedPiece{t.Name(rank, p), p})
		}
		r.Ranks = append(r.Ranks, x)
	}
	r.Pairs = []pairReport{}
	for _, v := range volumes {
		r.Pairs = append(r.Pairs, pairReport{v.From, v.To, v.Reads, v.Bytes, v.Whole})
		r.Reads, r.Bytes, r.Whole = r.Reads+v.Reads, r.Bytes+v.Bytes, r.Whole+v.Whole
		b := r.From.end.BlocksOf(v.From, r.From.Ranks == r.To.Ranks)
		q := b.Request(r.Tokens, r.Have)
		if q.Bytes > r.InBlocks.Request.Bytes {
			r.InBlocks.Rank, r.InBlocks.Blocks, r.InBlocks.Request = v.From, b, q
		}
		r.InBlocks.Pairs++
		r.InBlocks.AllBytes += q.Bytes
	}
	return nil
}

// only leaves the pieces of a block in the lists.
func (r *transferReport) only(block string) error {
	left := 0
	for i := range r.Ranks {
		x := &r.Ranks[i]
		x.Reads = slices.DeleteFunc(x.Reads, func(p namedPiece) bool { return graph.BlockOf(p.State) != block })
		left, x.of = left+len(x.Reads), block
	}
	if left == 0 {
		return errors.New("no piece of it moves")
	}
	return nil
}

func (r *transferReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s", visible(r.Model), count(r.Tokens, "token"))
	if r.Have > 0 {
		fmt.Fprintf(w, ", the rows of %s there already,", thousands(int64(r.Have)))
	}
	fmt.Fprintf(w, " from %s to %s\n", r.From, r.To)
	for i := range r.Ranks {
		r.Ranks[i].print(w, i)
	}
	r.matrix(w)
	fmt.Fprintf(w, "\nIn all %s in %s.\n", count64(r.Bytes, "byte"), count(r.Reads, "piece"))
	fmt.Fprintf(w, "All pages and states that these ranks have of the sequence: %s.\n", r.against(r.Whole))
	r.InBlocks.print(w, r)
}

func count64(n int64, thing string) string { return thousands(n) + " " + plural(int(min(n, 2)), thing) }

// against is a number of bytes, and how many times those that move it is.
func (r *transferReport) against(n int64) string {
	if r.Bytes == 0 {
		return count64(n, "byte")
	}
	return fmt.Sprintf("%s, %.2f times as many", count64(n, "byte"), float64(n)/float64(r.Bytes))
}

func (r *readReport) print(w io.Writer, rank int) {
	fmt.Fprintf(w, "\nrank %d reads %s in %s", rank, count64(r.Bytes, "byte"), count(r.Count, "piece"))
	if r.of != "" {
		fmt.Fprintf(w, ", of which these are of %s", r.of)
	}
	fmt.Fprintln(w)
	width := len("piece")
	for _, p := range r.Reads {
		width = max(width, len([]rune(visible(p.State))))
	}
	if len(r.Reads) > 0 {
		fmt.Fprintf(w, "  %4s  %-*s  %10s  %12s  %14s  %10s  %12s\n", "from", width, "piece", "of", "at", "bytes", "to", "at")
	}
	for _, p := range r.Reads {
		bytes := thousands(p.Bytes)
		if p.Count > 1 {
			bytes = fmt.Sprintf("%d × %s", p.Count, bytes)
		}
		fmt.Fprintf(w, "  %4d  %-*s  %10s  %12s  %14s  %10s  %12s\n", p.From, width, visible(p.State), regionName(p.Source.Region), thousands(p.Source.At),
			bytes, regionName(p.Dest.Region), thousands(p.Dest.At))
	}
}

func regionName(region int) string {
	if region == 0 {
		return "states"
	}
	return "page " + thousands(int64(region-1))
}

// matrix is the bytes between any two ranks.
func (r *transferReport) matrix(w io.Writer) {
	of := map[[2]int]int64{}
	for _, p := range r.Pairs {
		of[[2]int{p.From, p.To}] = p.Bytes
	}
	fmt.Fprintf(w, "\nbytes from   ")
	for to := range r.To.Ranks {
		fmt.Fprintf(w, "%14s", "to rank "+strconv.Itoa(to))
	}
	fmt.Fprintln(w)
	for from := range r.From.Ranks {
		fmt.Fprintf(w, "rank %-8d", from)
		for to := range r.To.Ranks {
			fmt.Fprintf(w, "%14s", thousands(of[[2]int{from, to}]))
		}
		fmt.Fprintln(w)
	}
}

func (b *blocksReport) print(w io.Writer, r *transferReport) {
	if b.Pairs == 0 {
		return
	}
	fmt.Fprintf(w, "In blocks of one size, %s each: %s.\n", count64(b.Blocks.Bytes, "byte"), r.against(b.AllBytes))
	var is, has, ids []string
	pool := lowering.Pool{CacheParts: b.CacheParts, StateParts: b.StateParts, Blocks: b.Rows + b.Request.States, Ratio: b.Ratio}
	add := func(what, kind string, blocks, first, end int) {
		is, has = append(is, what), append(has, fmt.Sprintf("%s of %s", thousands(int64(blocks)), kind))
		ids = append(ids, fmt.Sprintf("%d to %d of %s", first, end-1, kind))
	}
	if b.Caches > 0 {
		add(fmt.Sprintf("the rows of %s in a layer (%s bytes each)", count(b.Tokens, "token"), thousands(b.Row)), "rows", b.Rows, 0, pool.StateID(0, 0))
	}
	if b.Blocks.States > 0 {
		add(fmt.Sprintf("the states of a layer (%s bytes, and %s of padding)", thousands(b.State), thousands(b.Pad)), "states", b.Request.States, pool.StateID(0, 0), pool.Len())
	}
	fmt.Fprintf(w, "  On rank %d a block is %s.\n  The sequence has %s in each of %s, with descriptors %s.\n",
		b.Rank, strings.Join(is, ", or "), strings.Join(has, " and "), count(b.Tensors, "tensor"), strings.Join(ids, " and "))
}
