package transport

import "context"

// local reads memory of the same process.
type local struct {
	g  *Grants
	by Session
}

// Local returns a reader of grants of this process.
func Local(g *Grants, by Session) Reader { return local{g, by} }

func (l local) Read(ctx context.Context, t Ticket, pieces []Piece) *Completion {
	return NewCompletion(func() error {
		if err := Check(pieces); err != nil {
			return err
		}
		x, err := l.g.hold(l.by, t)
		if err != nil {
			return err
		}
		defer l.g.leave(x)
		for i := range pieces {
			p := &pieces[i]
			m, err := x.at(p.Region, p.From, p.Bytes)
			if err == nil {
				err = move(ctx, m, p)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (local) Close() error { return nil }

// window is the size of a copy between device memories.
const window = 512 << 10

// move copies a piece, through a buffer if neither side is host memory.
func move(ctx context.Context, m Memory, p *Piece) error {
	for at := int64(0); at < p.Bytes; at += window {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(window, p.Bytes-at)
		if to := p.To.Direct(p.At+at, n); to != nil {
			if err := m.Read(to, p.From+at); err != nil {
				return err
			}
			continue
		}
		from := m.Direct(p.From+at, n)
		if from == nil {
			from = make([]byte, n)
			if err := m.Read(from, p.From+at); err != nil {
				return err
			}
		}
		if err := p.To.Write(from, p.At+at); err != nil {
			return err
		}
	}
	return nil
}
