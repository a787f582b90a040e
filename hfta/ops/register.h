#pragma once

namespace hfta::ops {

// One function per file of rules; `rule.cpp` calls each once, when the table is first asked for. Called by name, not registered by
// static objects, so that no linker drops them.

void register_convolution_rules();
void register_pooling_rules();
void register_product_rules();
void register_random_rules();
void register_batch_norm_rules();
void register_nll_loss_rules();
void register_elementwise_rules();
void register_number_rules();
void register_layer_norm_rules();
void register_embedding_rules();
void register_pointwise_loss_rules();
void register_margin_loss_rules();
void register_attention_rules();
void register_folded_rules();
void register_axis_rules();
void register_recurrent_rules();
void register_softmax_rules();
void register_merged_rules();
void register_rectified_pool_rules();
void register_pooled_convolution_rules();

}  // namespace hfta::ops
