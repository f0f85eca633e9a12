// Zoneout: units that keep the state from before a step, and its gradient.
//
//   s' = m * s + (1 - m) * s_new
//
// m being 1 where the choices say so, or a share.
#pragma once

#include "problem.h"

namespace kln {
namespace {

// Of one state; of none where `asked` is false.
template <class T>
class Zoneout {
 public:
  Zoneout(const uint8_t* choices, double share, long units)
      : asked(choices || share > 0),
        choices_(choices),
        share_(T(share)),
        units_(units) {}

  const bool asked;

  // Keeps a part of the old state (U) in the new one. `place` counts rows of
  // the choices.
  void keep(long place, const T* old, T* state) const {
    const uint8_t* stays = choices_ + (choices_ ? place * units_ : 0);
    for (long u = 0; u < units_; ++u) {
      if (!choices_) {
        state[u] = share_ * old[u] + (T(1) - share_) * state[u];
      } else if (stays[u]) {
        state[u] = old[u];
      }
    }
  }

  // From the gradient of the state that goes on to that of the new one; `past`
  // gets what passes by the step to the old one.
  void divide(long place, T* d, T* past) const {
    const uint8_t* stays = choices_ + (choices_ ? place * units_ : 0);
    for (long u = 0; u < units_; ++u) {
      if (choices_) {
        past[u] = stays[u] ? d[u] : T(0);
        d[u] = stays[u] ? T(0) : d[u];
      } else {
        past[u] = share_ * d[u];
        d[u] *= T(1) - share_;
      }
    }
  }

  void add(const T* past, T* d) const {
    for (long u = 0; u < units_; ++u) d[u] += past[u];
  }

 private:
  const uint8_t* choices_;  // (B, T, U), or NULL
  T share_;
  long units_;
};

// What stays of h and of c.
template <class T>
struct Zoneouts {
  Zoneout<T> h, c;

  explicit Zoneouts(const KlnProblem& p)
      : h(p.zoneout, p.zoneout_share, p.units),
        c(p.cell_zoneout, p.cell_zoneout_share, p.units) {}
  bool asked() const { return h.asked || c.asked; }
};

}  // namespace
}  // namespace kln
