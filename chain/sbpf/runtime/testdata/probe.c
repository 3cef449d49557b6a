// A program for tests of the chain's rules. The first byte of its data selects an operation, mostly
// on its first account. The rest is the operation's number n.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;

typedef struct {
  u8 first, signer, writable, executable;
  u32 unused;
  u64 key[4], owner[4], lamports, size;
  u8 data[];
} account;

typedef struct { const void *at; u64 size; } slice;

extern u64 sol_log_(const void *, u64);
extern u64 sol_log_64_(u64, u64, u64, u64, u64);
extern u64 sol_log_pubkey(const void *);
extern u64 sol_log_compute_units_(void);
extern u64 sol_log_data(const slice *, u64);
extern u64 sol_set_return_data(const void *, u64);
extern u64 sol_get_clock_sysvar(void *);
extern u64 sol_get_rent_sysvar(void *);
extern u64 sol_get_sysvar(const void *, void *, u64, u64);
extern u64 sol_sha256(const slice *, u64, void *);
extern u64 sol_memcpy_(void *, const void *, u64);
extern u64 sol_memset_(void *, u8, u64);
extern void abort(void);

enum { SPARE = 10240, MAX = 4 };

static __attribute__((noinline)) u64 deeper(volatile u64 n) { return n == 0 ? 0 : deeper(n - 1) + n; }

static __attribute__((noinline)) u64 system(u8 what, u64 n, const u8 *data) {
  u64 v[8];
  slice s[2] = {{"psyche", 6}, {data, 8}};
  sol_memset_(v, 0, sizeof v);
  switch (what) {
  case 20: return sol_log_("hello", n);
  case 21: return sol_log_64_(1, 2, 3, 4, n);
  case 22: return sol_log_pubkey(v);
  case 23: return sol_log_compute_units_();
  case 24: return sol_log_data(s, n);
  case 25: return sol_set_return_data(data, n);
  case 26: sol_get_clock_sysvar(v); return sol_log_64_(v[0], v[1], v[2], v[3], v[4]);
  case 27: sol_get_rent_sysvar(v); return sol_log_64_(v[0], v[1], v[2] & 0xff, 0, 0);
  case 28: { // reads 16 bytes, from n on, of the sysvar whose address follows
    u64 r = sol_get_sysvar(data + 8, v, n, 16);
    return sol_log_64_(r, v[0], v[1], 0, 0);
  }
  case 29: sol_sha256(s, n, v); return sol_log_64_(v[0], v[1], v[2], v[3], 0);
  case 30: abort();
  case 31: return sol_get_clock_sysvar((u8 *)v + n);
  case 32: return sol_memcpy_((u8 *)v + n, v, 8);
  case 33: return sol_log_((const void *)(5UL << 32), n);
  case 34: return sol_sha256((const slice *)((u8 *)s + n), 1, v);
  case 35: for (u64 i = 0; i < n; i++) sol_log_("0123456789abcdefghijklmnopqrstuvwxyz", 36); return 0;
  }
  return 2UL << 32;
}

u64 entrypoint(u8 *in) {
  account *a[MAX];
  u64 count = *(u64 *)in;
  if (count > MAX) return 2UL << 32;
  in += 8;
  for (u64 i = 0; i < count; i++) {
    if (*in != 0xff) { a[i] = a[*in]; in += 8; continue; }
    a[i] = (account *)in;
    in += sizeof(account) + a[i]->size + SPARE;
    in = (u8 *)(((u64)in + 7) & ~7UL) + 8;
  }
  u64 size = *(u64 *)in, n = 0;
  const u8 *data = in + 8;
  if (size < 9) return 3UL << 32;
  for (int i = 0; i < 8; i++) n |= (u64)data[1 + i] << (8 * i);
  if (data[0] >= 20) return system(data[0], n, data + 1);
  if (data[0] > 2 && data[0] != 12 && count == 0) return 11UL << 32;
  switch (data[0]) {
  case 0: return n;
  case 1: for (;;) {}
  case 2: return deeper(n) == 0 && n != 0;
  case 3: a[0]->data[n] += 1; return 0;
  case 4: a[0]->lamports -= n; a[1]->lamports += n; return 0;
  case 5: a[0]->lamports += n; return 0;
  case 6: a[0]->size += n; return 0;
  case 7: a[0]->owner[0] ^= n; return 0;
  case 8: sol_memset_(a[0]->data, 0, a[0]->size); a[0]->owner[0] ^= n; return 0;
  case 9: a[0]->size -= n; return 0;
  case 10: a[0]->executable ^= 1; a[0]->key[0] ^= n; a[0]->signer ^= 1; return 0; // none of these changes has an effect
  case 11: return sol_log_64_(count, a[0]->signer, a[0]->writable, a[0]->executable, a[0]->size);
  case 12: return *(u64 *)((u64)4 << 32 | n);
  case 13: a[0]->lamports = 0; sol_memset_(a[0]->data, 0, a[0]->size); a[1]->lamports += n; return 0;
  case 14: sol_memset_(a[0]->data + a[0]->size, 7, n); a[0]->size += n; return 0;
  }
  return 2UL << 32;
}
