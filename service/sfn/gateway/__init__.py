"""The gateway: a transparent reverse proxy in front of a catalog that loses no commit that passes through it.

What a commit is, and what its answer means, pure functions decide (`recognise`, `naming`, `outcome`); `commits` notes
it in the inbox, before and after; `proxy` moves the bytes.
"""
